SELECT revision, file_digest, applied_at, file_name, applied_by, refused, forgotten_at IS NOT NULL AS forgotten
FROM projects
WHERE namespace = $1 AND project = $2 FOR UPDATE
