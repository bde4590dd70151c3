-- The oldest window that is due and not decided, and whether any schedule is to fire at all. Lanes as in overdue.sql; of each the earliest due are read,
-- because a schedule may be due for another reason than its next window.
WITH RECURSIVE lanes AS (
    (SELECT p.project, p.lane FROM positions p
     WHERE p.namespace = $1 AND p.due_at IS NOT NULL ORDER BY p.project, p.lane LIMIT 1)
    UNION ALL
    SELECT following.project, following.lane
    FROM lanes l CROSS JOIN LATERAL (
        SELECT p.project, p.lane FROM positions p
        WHERE p.namespace = $1 AND p.due_at IS NOT NULL AND (p.project, p.lane) > (l.project, l.lane)
        ORDER BY p.project, p.lane LIMIT 1) AS following)
SELECT min(due.next_fire_at) FILTER (WHERE due.next_fire_at <= (SELECT clock_timestamp())) AS due_since,
       count(*) > 0 AS awaits
FROM lanes LEFT JOIN LATERAL (
    SELECT p.next_fire_at FROM positions p
    WHERE p.namespace = $1 AND p.project = lanes.project AND p.lane = lanes.lane
      AND p.due_at <= (SELECT clock_timestamp())
    ORDER BY p.due_at LIMIT $2) AS due ON true
