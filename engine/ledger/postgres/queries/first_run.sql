-- Rows without first_run_id are from code before chains: the run that it started is the first.
SELECT coalesce(first_run_id, run_id) AS first_run_id FROM fires
WHERE namespace = $1 AND workflow_id = $2 AND windows = 1
