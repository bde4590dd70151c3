-- `known`: windows beyond the cursor that have a row already. `open`: what may stand in the way of
-- the next start; of a schedule whose runs may overlap only where something waits in a queue, or
-- all is asked for ($3). `awaited`: what became of windows that it waits for.
SELECT s.key, s.project, s.definition_version, s.digest, s.series, s.suffixed, s.max_bucket,
       s.effective_from, s.cursor, s.workflow_type, s.retired_at, s.paused_at, s.paused_reason,
       s.paused_by, s.paused_until, s.absent_since, s.failures, s.rules, s.cursor_reading, s.origin,
       d.definition, known.fire_times AS known, known.ran, in_the_way.fires AS open
FROM schedules s
JOIN definitions d ON d.namespace = s.namespace AND d.key = s.key AND d.version = s.definition_version
LEFT JOIN LATERAL (
    SELECT array_agg(f.fire_time ORDER BY f.fire_time) AS fire_times,
           array_agg(f.status NOT IN ('skipped', 'expired', 'rejected') ORDER BY f.fire_time) AS ran
    FROM fires f
    WHERE f.namespace = s.namespace AND f.key = s.key AND f.series = s.series
      AND f.fire_time > s.cursor AND f.kind = 'window') AS known ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object(
               'fire_id', f.id, 'workflow_id', f.workflow_id, 'status', f.status,
               'fire_time', f.fire_time, 'open_at', f.open_at, 'overlap', f.overlap,
               'stop', f.stop, 'awaited', CASE WHEN f.awaits IS NOT NULL THEN (
                   SELECT jsonb_agg(jsonb_build_object(
                              'parent', a.parent, 'when', a.wants, 'became', a.became,
                              'reason', a.reason, 'since', a.closed_at) ORDER BY a.number)
                   FROM awaited a WHERE a.namespace = f.namespace AND a.fire_id = f.id) END)
               ORDER BY f.id) AS fires
    FROM fires f
    WHERE f.namespace = s.namespace AND f.key = s.key
      AND f.status IN ('claimed', 'queued', 'starting', 'started') AND f.lost_at IS NULL
      AND f.kind <> 'handler'
      AND ($3 OR d.definition ? 'overlap' OR EXISTS (
          SELECT 1 FROM fires q
          WHERE q.namespace = s.namespace AND q.key = s.key AND q.status = 'queued'))) AS in_the_way ON true
WHERE s.namespace = $1 AND s.key = ANY ($2::text[])
ORDER BY s.next_fire_at, s.key
