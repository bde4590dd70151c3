DELETE FROM api_sessions WHERE namespace = $1 AND begun_at < clock_timestamp() - $2::interval
