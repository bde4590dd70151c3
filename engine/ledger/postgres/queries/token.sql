-- Apart from `tokens`: each request of the API asks this.
SELECT id, name, scope, keys, projects, task_queues, external, digest, created_at, created_by, expires_at, revoked_at, revoked_by, used_at, used_from,
       revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp()) AS in_force
FROM api_tokens
WHERE namespace = $1 AND id = $2
