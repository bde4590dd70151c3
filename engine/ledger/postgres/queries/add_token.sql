-- No row: a token of that name is in force. The secret's digest alone is kept.
INSERT INTO api_tokens (namespace, id, name, scope, keys, digest, created_by, expires_at)
VALUES ($1, :id, :name, :scope, :keys::text[], :digest, :created_by, :expires_at::timestamptz)
ON CONFLICT (namespace, name) WHERE revoked_at IS NULL DO NOTHING
RETURNING created_at
