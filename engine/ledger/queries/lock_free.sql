-- Whoever is locked is being planned or edited, and will have its next fire time written.
SELECT key, next_fire_at FROM schedules
WHERE namespace = $1 AND key = ANY ($2::text[]) AND failures = 0
ORDER BY key FOR UPDATE SKIP LOCKED
