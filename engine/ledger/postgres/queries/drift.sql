-- What differs from the file alone: what operators paused or skipped, and what applications
-- requested and is still to come.
SELECT s.key, s.origin, s.paused_at, s.paused_reason, s.paused_by, s.paused_until,
       ahead.fire_times AS skipped
FROM schedules s
JOIN positions p ON p.namespace = s.namespace AND p.key = s.key
LEFT JOIN LATERAL (
    SELECT array_agg(f.fire_time ORDER BY f.fire_time) AS fire_times
    FROM fires f
    WHERE f.namespace = s.namespace AND f.key = s.key AND f.series = s.series
      AND f.fire_time > p.cursor AND f.kind = 'window' AND f.status = 'skipped'
      AND f.reason_code = 'user') AS ahead ON true
WHERE s.namespace = $1 AND s.project = $2 AND s.retired_at IS NULL
  AND (s.paused_at IS NOT NULL OR ahead.fire_times IS NOT NULL
       OR (s.origin = 'api' AND p.next_fire_at IS NOT NULL))
ORDER BY s.key
