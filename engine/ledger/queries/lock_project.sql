SELECT revision, file_digest, applied_at FROM projects
WHERE namespace = $1 AND project = $2 FOR UPDATE
