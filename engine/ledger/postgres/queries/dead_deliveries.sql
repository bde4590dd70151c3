SELECT e.*, NULL::text AS own_input, false AS sealed, f.options::text AS options, d.name AS delivery_name, d.attempts, d.first_at,
       d.error AS delivery_error, d.dead_at, d.subscription
FROM (SELECT * FROM deliveries WHERE namespace = $1 AND dead_at IS NOT NULL ORDER BY dead_at DESC LIMIT $2) AS d
JOIN events e ON e.namespace = d.namespace AND e.position = d.position
LEFT JOIN fires f ON f.namespace = e.namespace AND f.workflow_id = e.workflow_id AND e.kind <> 'window'
ORDER BY d.dead_at DESC
