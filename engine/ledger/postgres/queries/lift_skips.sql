-- For keys whose definition changes: windows skipped ahead are written anew, or dropped. They are
-- looked up after each cursor, because in a plain join the planner expects a third of all rows.
DELETE FROM fires WHERE id IN (
    SELECT ahead.id FROM schedules s
    CROSS JOIN LATERAL position_of(s.namespace, s.key) AS p
    CROSS JOIN LATERAL (
        SELECT f.id FROM fires f
        WHERE f.namespace = s.namespace AND f.key = s.key AND f.series = s.series
          AND f.fire_time > p.cursor AND f.kind = 'window' AND f.status = 'skipped'
          AND f.reason_code = 'user'
        OFFSET 0) AS ahead
    WHERE s.namespace = $1 AND s.key = ANY ($2::text[]))
RETURNING key, fire_time, workflow_id, reason
