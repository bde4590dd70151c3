-- The windows in $2 <= fire_time < $3 by status, of schedules whose key is like one of $4, where given. At most
-- $5 rows are read, before keys are compared: a week of 10,000 schedules may have millions.
SELECT status, sum(windows)::bigint AS windows
FROM (
    SELECT key, status, windows, kind FROM fires
    WHERE namespace = $1 AND fire_time >= $2 AND fire_time < $3
    ORDER BY fire_time DESC, id DESC LIMIT $5) AS found
WHERE kind = 'window' AND ($4::text[] IS NULL OR key LIKE ANY ($4::text[]))
GROUP BY status
