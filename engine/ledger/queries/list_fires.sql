SELECT * FROM fire_history
WHERE namespace = $1 AND ($2::text IS NULL OR key = $2) AND ($3::text IS NULL OR status = $3)
  AND ($4::text IS NULL OR workflow_id = $4)
ORDER BY fire_time DESC, key LIMIT $5
