-- How many windows of a key found its queue full, and when the last of them opened. Reads the
-- newest 5,000 skipped rows: older ones no longer matter, and counting them may take any time.
SELECT coalesce(sum(windows), 0)::bigint AS windows, max(last_fire_time) AS last
FROM (
    SELECT each.* FROM keys_of($1, $2) AS k CROSS JOIN LATERAL (
        SELECT windows, last_fire_time, reason_code AS code FROM fires
        WHERE namespace = $1 AND key = k.key AND status = 'skipped'
        ORDER BY fire_time DESC, id DESC LIMIT 5000) AS each) AS skipped
WHERE code = 'queue_full'
