UPDATE queues SET dropped_at = clock_timestamp()
WHERE namespace = $1 AND project = $2 AND dropped_at IS NULL AND NOT queue = ANY ($3::text[])
