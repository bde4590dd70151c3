SELECT e.*, NULL::text AS own_input, false AS sealed, d.name AS delivery_name, d.attempts, d.first_at,
       d.error AS delivery_error, d.dead_at, d.subscription
FROM (SELECT * FROM deliveries WHERE namespace = $1 AND dead_at IS NOT NULL ORDER BY dead_at DESC LIMIT $2) AS d
JOIN events e ON e.namespace = d.namespace AND e.position = d.position
ORDER BY d.dead_at DESC
