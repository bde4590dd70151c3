-- Only requested runs and handlers have an input of their own.
SELECT e.*, f.input::text AS own_input, f.sealed_input IS NOT NULL AS sealed, f.options::text AS options
FROM (SELECT * FROM events WHERE namespace = $1 AND position > $2 ORDER BY position LIMIT $3) AS e
LEFT JOIN fires f ON f.namespace = e.namespace AND f.workflow_id = e.workflow_id AND e.kind <> 'window'
ORDER BY e.position
