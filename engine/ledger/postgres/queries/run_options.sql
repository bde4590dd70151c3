SELECT options FROM fires WHERE namespace = $1 AND workflow_id = $2
