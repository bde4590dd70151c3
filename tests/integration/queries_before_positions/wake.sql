-- Keys in whose queue something waits for nothing any more: neither for a place among the runs of its
-- own key, nor for windows of others. Those of a queue that keeps its order wait behind what waits for
-- others. A key is asked about once, however many of its windows wait, and never counts further than
-- to its limit: to count for each window that waits would be their product. What is counted is named
-- by the line (`line.key`): by the schedule it would be counted for each schedule first.
UPDATE schedules s SET next_fire_at = least(s.next_fire_at, clock_timestamp())
FROM (
    SELECT o.key
    FROM (
        SELECT q.key, min(q.id) AS first
        FROM fires q
        WHERE q.namespace = $1 AND q.status = 'queued' AND q.lost_at IS NULL AND q.awaits IS NULL
        GROUP BY q.key) AS line
    JOIN schedules o ON o.namespace = $1 AND o.key = line.key
    JOIN definitions d ON d.namespace = o.namespace AND d.key = o.key
                      AND d.version = o.definition_version
    CROSS JOIN LATERAL (
        SELECT coalesce((d.definition ->> 'maxConcurrentRuns')::int, 1) AS places) AS most
    WHERE (
          SELECT count(*) FROM (
              SELECT FROM fires f
              WHERE f.namespace = $1 AND f.key = line.key AND f.lost_at IS NULL
                AND f.status IN ('claimed', 'starting', 'started') AND f.kind <> 'handler'
              LIMIT most.places) AS open) < most.places
      AND NOT EXISTS (
          SELECT 1 FROM fires h
          WHERE h.namespace = $1 AND h.key = line.key AND h.awaits IS NOT NULL
            AND h.id < line.first AND d.definition ->> 'overlap' IN ('queue', 'queue_one'))
    UNION
    SELECT a.key
    FROM (
        SELECT w.key, w.fire_id, w.became <> 'pending' AS final,
               CASE w.wants
                   WHEN 'success' THEN w.became = 'completed'
                   WHEN 'failure' THEN w.became = ANY ($2::text[])
                   ELSE w.became = 'completed' OR w.became = ANY ($2::text[])
               END AS met
        FROM awaited w WHERE w.namespace = $1) AS a
    GROUP BY a.key, a.fire_id
    HAVING bool_and(a.final) OR bool_or(a.final AND NOT a.met)) AS waiting
WHERE s.namespace = $1 AND s.key = waiting.key
  AND s.paused_at IS NULL AND s.retired_at IS NULL AND s.enabled
  AND (s.next_fire_at IS NULL OR s.next_fire_at > clock_timestamp())
RETURNING s.key
