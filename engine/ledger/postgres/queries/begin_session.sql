INSERT INTO api_sessions (namespace, digest, token, token_digest) VALUES ($1, $2, $3, $4)
