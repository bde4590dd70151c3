SELECT failure, tried FROM fire_history WHERE namespace = $1 AND workflow_id = $2
