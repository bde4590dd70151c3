SELECT e.*, f.input::text AS own_input, f.sealed_input IS NOT NULL AS sealed,
       d.name AS delivery_name, d.attempts, d.first_at, d.error AS delivery_error, d.dead_at, d.subscription,
       d.attempts = 0 AND EXISTS (
           SELECT 1 FROM deliveries b
           WHERE b.namespace = $1 AND b.subscription = $2 AND b.key = d.key AND b.attempts = 1 AND b.position <= d.position
             AND b.due_at > (SELECT clock_timestamp()) AND (b.position, b.name) < (d.position, d.name)) AS in_front
FROM (SELECT * FROM deliveries
      WHERE namespace = $1 AND subscription = $2 AND due_at <= (SELECT clock_timestamp())
      ORDER BY due_at, position, name LIMIT $3) AS d
JOIN events e ON e.namespace = d.namespace AND e.position = d.position
LEFT JOIN fires f ON f.namespace = e.namespace AND f.workflow_id = e.workflow_id AND e.kind <> 'window'
ORDER BY d.position, d.name
