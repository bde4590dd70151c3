-- Extend the current stretch, or begin a new one. One that ended longer ago than Temporal keeps runs, less the
-- margin ($3), is not extended: what ran since then may be forgotten, see unvouched_until.sql. The row says when
-- that one ended.
WITH latest AS (
    SELECT r.seen_from, r.seen_until, r.retention,
           clock_timestamp() - r.seen_until
               > kept - coalesce($3::interval, least(interval '10 minutes', kept / 4)) AS is_old
    FROM retentions r, least($2::interval, r.retention) AS kept
    WHERE r.namespace = $1 AND r.binding = $4
    ORDER BY r.seen_from DESC LIMIT 1
), extended AS (
    UPDATE retentions r SET seen_until = greatest(r.seen_until, clock_timestamp())
    FROM latest
    WHERE r.namespace = $1 AND r.binding = $4 AND r.seen_from = latest.seen_from AND latest.retention = $2 AND NOT latest.is_old
    RETURNING r.seen_from)
INSERT INTO retentions (namespace, binding, retention, seen_from, seen_until, unseen_from)
SELECT $1, $4, $2, clock_timestamp(), clock_timestamp(),
       (SELECT latest.seen_until + 3 * $5::interval FROM latest WHERE latest.is_old)
WHERE NOT EXISTS (SELECT 1 FROM extended)
ON CONFLICT DO NOTHING
RETURNING (SELECT latest.seen_until FROM latest WHERE latest.is_old) AS silent_since
