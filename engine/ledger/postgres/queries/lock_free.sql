-- Whoever is locked is being planned or edited, and will have its next fire time written. What has
-- moved since this statement began is left out.
SELECT s.key, p.next_fire_at FROM schedules s
JOIN positions p ON p.namespace = s.namespace AND p.key = s.key
WHERE s.namespace = $1 AND s.key = ANY ($2::text[]) AND s.failures = 0
ORDER BY s.key FOR UPDATE OF s, p SKIP LOCKED
