-- A locked schedule is being planned or edited, which writes its next fire time. Schedules that
-- moved since this statement began are left out.
SELECT s.key, p.next_fire_at FROM schedules s
JOIN positions p ON p.namespace = s.namespace AND p.key = s.key
WHERE s.namespace = $1 AND s.key = ANY ($2::text[]) AND s.failures = 0
ORDER BY s.key FOR UPDATE OF s, p SKIP LOCKED
