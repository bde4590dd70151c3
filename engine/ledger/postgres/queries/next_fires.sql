-- The cached next fire times; a schedule that backs off has delayed its own.
SELECT s.key, p.next_fire_at FROM schedules s
JOIN LATERAL position_of(s.namespace, s.key) AS p ON true
WHERE s.namespace = $1 AND s.project = $2 AND s.key > $3 AND s.failures = 0 AND s.rules = $4
ORDER BY s.key LIMIT $5
