-- In the order in which schedules are planned next; if windows are excluded, they start later. No
-- index has all lanes of a project in one order: the project is read whole, and only the few shown
-- are looked up further. Run this every few seconds at most.
SELECT next.key, next.next_fire_at AS fire_time,
       coalesce(d.definition ->> 'timezone', 'UTC') AS timezone,
       -- Only if windows may be excluded or are skipped: those are planned but never fire.
       CASE WHEN d.definition ? 'exclude' OR ahead.skipped_at IS NOT NULL THEN d.definition END
           AS definition,
       ahead.skipped_at
FROM (
    SELECT s.namespace, s.key, s.definition_version, p.next_fire_at, s.series, p.cursor
    FROM schedules s
    JOIN positions p ON p.namespace = s.namespace AND p.key = s.key
    WHERE s.namespace = $1 AND s.project = $2 AND p.next_fire_at IS NOT NULL
    ORDER BY p.next_fire_at, p.key LIMIT $3) AS next
JOIN definitions d ON d.namespace = next.namespace AND d.key = next.key
                  AND d.version = next.definition_version
LEFT JOIN LATERAL (
    SELECT array_agg(f.fire_time) AS skipped_at
    FROM fires f
    WHERE f.namespace = next.namespace AND f.key = next.key AND f.series = next.series
      AND f.fire_time > next.cursor AND f.kind = 'window' AND f.status = 'skipped') AS ahead ON true
ORDER BY next.next_fire_at, next.key
