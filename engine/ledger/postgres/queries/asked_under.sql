SELECT key FROM schedules WHERE namespace = $1 AND request_id = $2
