-- How many windows of a key found its queue full, and when the last of them opened.
SELECT coalesce(sum(windows), 0)::bigint AS windows, max(last_fire_time) AS last
FROM fires
WHERE namespace = $1 AND key = $2 AND status = 'skipped' AND starts_with(reason, $3)
