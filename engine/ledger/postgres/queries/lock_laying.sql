-- The key whose turn it is, among those with a backfill that can continue or has to end. Only its
-- row is locked; a second statement reads what is laid, as in lock_due.sql.
SELECT s.key
FROM backfills b JOIN schedules s ON s.namespace = b.namespace AND s.key = b.key
WHERE b.namespace = $1 AND b.state = 'laying' AND s.project = $2 AND s.lane = ANY ($3::text[])
  AND (s.external OR s.workflow_type = ANY ($4::text[])) AND s.rules <= $5
  AND (SELECT NOT EXISTS (SELECT FROM bindings o
                          WHERE o.namespace = $1 AND o.current AND o.number <> $6))
  AND b.next_at <= (SELECT clock_timestamp())
  AND (s.retired_at IS NOT NULL OR s.series <> b.series
       OR (s.enabled AND (s.paused_at IS NULL OR s.paused_at <= b.requested_at)))
ORDER BY b.next_at, b.id LIMIT 1
FOR UPDATE OF s SKIP LOCKED
