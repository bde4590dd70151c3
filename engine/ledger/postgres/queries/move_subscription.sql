-- Only its holder moves it, and never back. $5 is there while the breaker is open; without a new rest ($6) the
-- time of the next retry stays.
UPDATE subscription_positions
SET position = greatest(position, $4), failing_error = $5,
    failing_since = CASE WHEN $5::text IS NOT NULL THEN coalesce(failing_since, clock_timestamp()) END,
    retry_at = CASE WHEN $5::text IS NOT NULL THEN coalesce(clock_timestamp() + $6::interval, retry_at) END
WHERE namespace = $1 AND name = $2 AND holder = $3
RETURNING name
