-- No row: a token of that name is in force. The secret's digest alone is kept.
INSERT INTO api_tokens (namespace, id, name, scope, keys, projects, task_queues, external, digest, created_by, expires_at)
VALUES ($1, :id, :name, :scope, :keys::text[], :projects::text[], :task_queues::text[], :external::text[], :digest, :created_by, :expires_at::timestamptz)
ON CONFLICT (namespace, name) WHERE revoked_at IS NULL DO NOTHING
RETURNING created_at
