SELECT key, project, digest, origin, retired_at IS NOT NULL AS retired
FROM schedules
WHERE namespace = $1 AND (key = ANY ($3::text[]) OR project = $2)
