SELECT * FROM fire_rows WHERE namespace = $1 AND workflow_id = $2
