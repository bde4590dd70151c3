-- Who wrote the row did not know of chains where the first run is not named: what it started was the first.
SELECT coalesce(first_run_id, run_id) AS first_run_id FROM fires
WHERE namespace = $1 AND workflow_id = $2 AND windows = 1
