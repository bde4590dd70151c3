SELECT key, project, digest, retired_at IS NOT NULL AS retired, origin, seed, successor
FROM schedules
WHERE namespace = $1 AND (key = ANY ($3::text[]) OR project = $2)
