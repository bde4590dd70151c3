-- The newest first: if runs close faster than their histories are read, it is old ones that wait.
SELECT workflow_id, run_id FROM fires
WHERE namespace = $1 AND counted = 'wanted' AND binding = $3 ORDER BY id DESC LIMIT $2
