SELECT revision, file_digest, applied_at, file_name, applied_by, refused FROM projects
WHERE namespace = $1 AND project = $2 FOR UPDATE
