-- Between two stretches, and between the last one and now, no worker was seen. What ran then, by a ledger of
-- which this is an old copy, Temporal has forgotten once it is older than the retention less the margin ($2).
-- $3 is the binding to that Temporal.
WITH gaps AS (
    SELECT r.seen_until AS begun, coalesce(following.seen_from, clock_timestamp()) AS ended,
           least(r.retention, following.retention) AS retention
    FROM retentions r
    LEFT JOIN LATERAL (
        SELECT n.seen_from, n.retention FROM retentions n
        WHERE n.namespace = $1 AND n.binding = $3 AND n.seen_from > r.seen_from ORDER BY n.seen_from LIMIT 1) AS following ON true
    WHERE r.namespace = $1 AND r.binding = $3
), kept AS (
    SELECT begun, ended,
           retention - coalesce($2::interval, least(interval '10 minutes', retention / 4)) AS time
    FROM gaps)
SELECT max(kept.ended - kept.time) AS until FROM kept WHERE kept.ended - kept.begun > kept.time
