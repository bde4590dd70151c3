SELECT version, series, definition, effective_from, applied_at, applied_by
FROM definitions WHERE namespace = $1 AND key IN (SELECT k.key FROM keys_of($1, $2) AS k)
ORDER BY version DESC LIMIT $3
