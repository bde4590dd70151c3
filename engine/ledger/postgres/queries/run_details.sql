SELECT h.failure, h.tried, f.second_runs
FROM fire_history h JOIN fires f ON f.namespace = h.namespace AND f.workflow_id = h.workflow_id
WHERE h.namespace = $1 AND h.workflow_id = $2
