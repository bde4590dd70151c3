SELECT name, code, text, since, project, key, cause, opened_at, resolved_at, sent, attempts, error
FROM alerts WHERE namespace = $1 AND resolved_at IS NULL
ORDER BY opened_at, name
