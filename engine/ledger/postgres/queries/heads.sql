SELECT key, project, digest, retired_at IS NOT NULL AS retired, origin
FROM schedules
WHERE namespace = $1 AND (key = ANY ($3::text[]) OR project = $2)
