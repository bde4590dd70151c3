SELECT (SELECT clock_timestamp()) AS now, s.key, s.project, s.series, p.cursor, s.enabled, p.rules,
       s.retired_at, s.paused_at, s.paused_reason, s.paused_by, s.paused_until,
       (SELECT max(c.forgotten_until) FROM chores c
        WHERE c.namespace = s.namespace AND c.key = ANY (s.key || s.former)) AS forgotten_until,
       p.next_fire_at IS NULL AS idle, s.former, s.successor
FROM schedules s
JOIN LATERAL position_of(s.namespace, s.key) AS p ON true
WHERE s.namespace = $1 AND s.key = ANY ($2::text[])
ORDER BY s.key
