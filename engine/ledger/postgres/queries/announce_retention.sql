-- Extend the current stretch, or begin a new one.
WITH latest AS (
    SELECT seen_from, retention FROM retentions WHERE namespace = $1
    ORDER BY seen_from DESC LIMIT 1
), extended AS (
    UPDATE retentions r SET seen_until = greatest(r.seen_until, clock_timestamp())
    FROM latest
    WHERE r.namespace = $1 AND r.seen_from = latest.seen_from AND latest.retention = $2
    RETURNING r.seen_from)
INSERT INTO retentions (namespace, retention, seen_from, seen_until)
SELECT $1, $2, clock_timestamp(), clock_timestamp()
WHERE NOT EXISTS (SELECT 1 FROM extended)
ON CONFLICT DO NOTHING
