-- Keys only. What a plan uses is read by a second statement after the lock: FOR UPDATE
-- re-checks the locked table alone, so a join here would return a stale definition beside a
-- fresh row. `clock_timestamp()` stands in a sub-select so that the index can use it.
SELECT due.key
FROM unnest($3::text[]) AS lanes (lane)
CROSS JOIN LATERAL (
    SELECT s.key, s.next_fire_at FROM schedules s
    WHERE s.namespace = $1 AND s.project = $2 AND s.lane = lanes.lane
      AND s.next_fire_at <= (SELECT clock_timestamp())
      AND (s.external OR s.workflow_type = ANY ($4::text[])) AND s.rules <= $5
    ORDER BY s.next_fire_at LIMIT $6
    FOR UPDATE SKIP LOCKED) AS due
ORDER BY due.next_fire_at
