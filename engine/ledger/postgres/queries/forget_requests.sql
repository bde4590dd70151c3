DELETE FROM api_requests WHERE namespace = $1 AND first_at < clock_timestamp() - $2::interval
