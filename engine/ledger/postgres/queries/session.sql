-- With its token: each request of a signed-in browser asks this. A token that a process has by itself is not here.
SELECT s.token, s.token_digest, t.*,
       t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > clock_timestamp()) AS in_force
FROM api_sessions s LEFT JOIN api_tokens t ON t.namespace = s.namespace AND t.id = s.token AND t.digest = s.token_digest
WHERE s.namespace = $1 AND s.digest = $2 AND s.begun_at > clock_timestamp() - $3::interval
