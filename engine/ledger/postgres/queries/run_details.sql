SELECT failure, tried, second_runs FROM fire_history WHERE namespace = $1 AND workflow_id = $2
