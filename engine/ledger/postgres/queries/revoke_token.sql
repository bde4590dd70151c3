UPDATE api_tokens SET revoked_at = clock_timestamp(), revoked_by = $3
WHERE namespace = $1 AND name = $2 AND revoked_at IS NULL
RETURNING id
