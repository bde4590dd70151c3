-- Two attempts behind it, so that it is in front of no other.
UPDATE deliveries d SET dead_at = NULL, due_at = clock_timestamp(), first_at = clock_timestamp(), attempts = 2
FROM events e
WHERE d.namespace = $1 AND d.dead_at IS NOT NULL AND e.namespace = d.namespace AND e.position = d.position
  AND e.event_id = $2 AND ($3::text IS NULL OR d.subscription = $3)
RETURNING d.name
