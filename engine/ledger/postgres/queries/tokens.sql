-- Those in force first, by name; one (`:id`) by its key: each request of the API asks this. See list_schedules.sql.
SELECT *, revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp()) AS in_force
FROM api_tokens
WHERE namespace = $1
  AND id = :id
ORDER BY revoked_at IS NOT NULL, name, created_at
