SELECT version, series, definition, effective_from, applied_at, applied_by
FROM definitions WHERE namespace = $1 AND key = $2
ORDER BY version DESC LIMIT $3
