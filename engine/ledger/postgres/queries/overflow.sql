-- How many windows of a key found its queue full, and when the last of them opened. Of the last 5,000
-- rows without a run: what lies further back is old news, and to count it may take as long as it likes.
SELECT coalesce(sum(windows), 0)::bigint AS windows, max(last_fire_time) AS last
FROM (
    SELECT windows, last_fire_time, reason FROM fires
    WHERE namespace = $1 AND key = $2 AND status = 'skipped'
    ORDER BY fire_time DESC, id DESC LIMIT 5000) AS skipped
WHERE starts_with(reason, $3)
