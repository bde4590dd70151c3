DELETE FROM api_sessions WHERE namespace = $1 AND digest = $2
