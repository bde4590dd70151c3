-- Keys only. A second statement reads what a plan needs, after the lock: FOR UPDATE re-checks only
-- the locked tables, so a join here would return a stale definition beside a fresh row. The row of
-- schedules is a key's lock. The row of positions is locked after it, so that a schedule that
-- another replica has moved meanwhile is no longer due here. `clock_timestamp()` is in a sub-select
-- so that the index can use it; $7 skips the dead entries before any live one. $8 are keys that are
-- planned separately; with $9 only these keys are locked. Nothing is due while another binding than $10
-- is current.
SELECT due.key
FROM unnest($3::text[]) AS lanes (lane)
CROSS JOIN LATERAL (
    SELECT s.key, p.due_at FROM positions p
    JOIN schedules s ON s.namespace = p.namespace AND s.key = p.key
    WHERE p.namespace = $1 AND p.project = $2 AND p.lane = lanes.lane
      AND p.due_at >= $7 AND p.due_at <= (SELECT clock_timestamp())
      AND (s.lane = '' OR s.workflow_type = ANY ($4::text[])) AND p.rules <= $5
      AND (SELECT NOT EXISTS (SELECT FROM bindings b
                              WHERE b.namespace = $1 AND b.current AND b.number <> $10))
      AND s.key <> ALL ($8::text[]) AND ($9::text[] IS NULL OR s.key = ANY ($9::text[]))
    ORDER BY p.due_at LIMIT $6
    FOR UPDATE OF s, p SKIP LOCKED) AS due
ORDER BY due.due_at
