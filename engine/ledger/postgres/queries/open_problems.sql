SELECT * FROM alerts WHERE namespace = $1 AND resolved_at IS NULL
ORDER BY opened_at, name
