SELECT at, by, verb, key, project, reason, workflow_id, before, after FROM actions
WHERE namespace = $1 AND ($2::text IS NULL OR key = $2)
ORDER BY at DESC, id DESC LIMIT $3
