SELECT key, bucket, data_from, fire_time AS data_to FROM data_gaps
WHERE namespace = $1 AND key = $2 AND told_at IS NOT NULL ORDER BY fire_time DESC LIMIT $3
