-- Only among the newest: an index by key would be one more write for each event.
SELECT e.*, NULL::text AS own_input, false AS sealed, f.options::text AS options
FROM (SELECT * FROM events WHERE namespace = $1 AND position IS NOT NULL ORDER BY position DESC LIMIT $5) AS e
LEFT JOIN fires f ON f.namespace = e.namespace AND f.workflow_id = e.workflow_id AND e.kind <> 'window'
WHERE ($2::text IS NULL OR e.key = $2) AND ($3::text IS NULL OR e.type = $3)
ORDER BY e.position DESC LIMIT $4
