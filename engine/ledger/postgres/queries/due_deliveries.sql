-- Two kinds, each with places of its own: what later events of the schedule wait for, and later retries.
-- What was put back waits for the first retry of an earlier one of its schedule. It takes no place of the limit
-- meanwhile: it would keep that retry, and those of other schedules, from being read. For the same reason what
-- is under way ($5) takes none.
SELECT e.*, f.input::text AS own_input, f.sealed_input IS NOT NULL AS sealed, f.options::text AS options,
       d.name AS delivery_name, d.attempts, d.first_at, d.error AS delivery_error, d.dead_at, d.subscription
FROM ((SELECT * FROM deliveries w
       WHERE w.namespace = $1 AND w.subscription = $2 AND w.due_at <= (SELECT clock_timestamp())
         AND w.attempts <= 1 AND NOT w.key = ANY ($5::text[])
         AND NOT (w.attempts = 0 AND EXISTS (
             SELECT 1 FROM deliveries b
             WHERE b.namespace = $1 AND b.subscription = $2 AND b.key = w.key AND b.attempts = 1 AND b.due_at IS NOT NULL
               AND b.position <= w.position AND (b.position, b.name) < (w.position, w.name)))
       ORDER BY w.due_at, w.position, w.name LIMIT $3)
      UNION ALL
      (SELECT * FROM deliveries r
       WHERE r.namespace = $1 AND r.subscription = $2 AND r.due_at <= (SELECT clock_timestamp()) AND r.attempts > 1
       ORDER BY r.due_at, r.position, r.name LIMIT $4)) AS d
JOIN events e ON e.namespace = d.namespace AND e.position = d.position
LEFT JOIN fires f ON f.namespace = e.namespace AND f.workflow_id = e.workflow_id AND e.kind <> 'window'
ORDER BY d.position, d.name
