-- Keys in whose queue something waits for nothing any more: neither for a run of its own key, nor
-- for windows of others. Those of a queue that keeps its order wait behind what waits for others.
UPDATE schedules s SET next_fire_at = least(s.next_fire_at, clock_timestamp())
FROM (
    SELECT q.key FROM fires q
    WHERE q.namespace = $1 AND q.status = 'queued' AND q.lost_at IS NULL AND q.awaits IS NULL
      AND NOT EXISTS (
          SELECT 1 FROM fires f
          WHERE f.namespace = q.namespace AND f.key = q.key AND f.lost_at IS NULL
            AND f.status IN ('claimed', 'starting', 'started') AND f.kind <> 'handler')
      AND NOT EXISTS (
          SELECT 1 FROM fires h
          JOIN schedules o ON o.namespace = h.namespace AND o.key = h.key
          JOIN definitions d ON d.namespace = o.namespace AND d.key = o.key
                            AND d.version = o.definition_version
          WHERE h.namespace = q.namespace AND h.key = q.key AND h.awaits IS NOT NULL
            AND h.id < q.id AND d.definition ->> 'overlap' IN ('queue', 'queue_one'))
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
