DELETE FROM deliveries
WHERE namespace = $1 AND dead_at < (SELECT clock_timestamp()) - $2::interval
