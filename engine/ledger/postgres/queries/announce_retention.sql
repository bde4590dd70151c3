-- Extend the current stretch, or begin a new one. One that ended longer ago than Temporal keeps runs, less the
-- margin ($3), is not extended: what ran since then may be forgotten, see unvouched_until.sql. The row says when
-- that one ended.
WITH latest AS (
    SELECT seen_from, seen_until, retention,
           clock_timestamp() - seen_until
               > least($2, retention) - coalesce($3::interval, least(interval '10 minutes', $2 / 4)) AS is_old
    FROM retentions WHERE namespace = $1 AND binding = $4
    ORDER BY seen_from DESC LIMIT 1
), extended AS (
    UPDATE retentions r SET seen_until = greatest(r.seen_until, clock_timestamp())
    FROM latest
    WHERE r.namespace = $1 AND r.binding = $4 AND r.seen_from = latest.seen_from AND latest.retention = $2 AND NOT latest.is_old
    RETURNING r.seen_from)
INSERT INTO retentions (namespace, binding, retention, seen_from, seen_until)
SELECT $1, $4, $2, clock_timestamp(), clock_timestamp()
WHERE NOT EXISTS (SELECT 1 FROM extended)
ON CONFLICT DO NOTHING
RETURNING (SELECT latest.seen_until FROM latest WHERE latest.is_old) AS silent_since
