-- Announcements decide which replicas live. So the caller itself must have announced without a gap
-- for $6, long enough for every other replica to do so after an outage of the database.
SELECT s.key FROM positions p
JOIN schedules s ON s.namespace = p.namespace AND s.key = p.key
WHERE p.namespace = $1 AND p.project = $2 AND p.lane = $3
  AND p.due_at <= (SELECT clock_timestamp())
  AND p.next_fire_at < (SELECT clock_timestamp()) - s.grace
  AND s.grace + $4::interval <= $6::interval AND p.rules <= $8
  AND (s.workflow_type IS NULL OR s.workflow_type <> ALL ($5::text[]))
  AND NOT EXISTS (
      SELECT 1 FROM replicas r
      WHERE r.namespace = s.namespace AND r.project = s.project AND r.task_queue = s.task_queue
        AND r.seen_at > (SELECT clock_timestamp()) - greatest($4::interval, r.heartbeat * 3)
        AND s.workflow_type = ANY (r.types))
ORDER BY p.next_fire_at LIMIT $7
