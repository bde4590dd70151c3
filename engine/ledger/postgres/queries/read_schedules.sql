-- `known`: windows after the cursor that have a row already. `open`: fires that may block the next
-- start; if runs may overlap, only when something is queued or all is requested ($3); a rerun
-- counts from its request. `awaited`: outcomes of the windows that a fire waits for.
-- Only as many open fires are read as a plan can decide on: $4 beyond the schedule's places (at
-- most $4) of those that run, of those that wait for a place and of those that wait for other
-- schedules; all that run if a window takes the place of others. The rest is counted: `waiting` and
-- `pending` are totals; `running` is counted up to the places, and only if not all were read. Of
-- fires that wait for other schedules and start in any order, some more are read from a place in
-- the line that $5 selects (from 0 to 1), so that none is missed forever.
-- `started`: of a schedule with a limit, how many windows of its series have started or may still, up to
-- the limit. Old runs are ranges of several windows.
-- All of it under the present key and the former ones, of each as much.
-- `open_at`: a run of another binding than $6 cannot be asked about here. It counts as open until those
-- who can ask see its end.
-- BETWEEN x AND x, and the key in ORDER BY: with `=`, and ordered by ID alone or not at all, the
-- planner may walk the primary key through all ended fires until it has found enough.
SELECT s.key, s.project, s.definition_version, s.digest, s.series, s.suffixed, p.max_bucket,
       s.effective_from, p.cursor, s.workflow_type, s.retired_at, s.paused_at, s.paused_reason,
       s.paused_by, s.paused_until, s.absent_since, s.failures, s.rules, p.cursor_reading, s.origin,
       s.former, s.successor,
       d.definition, known.fire_times AS known, known.ran, in_the_way.fires AS open,
       line.waiting::int, line.pending::int, line.changes::int AS line_changes,
       CASE WHEN policy.places > $4 THEN (
           SELECT count(*) FROM unnest(s.key || s.former) AS k (key) CROSS JOIN LATERAL (
               SELECT FROM fires f
               WHERE f.namespace = s.namespace AND f.key BETWEEN k.key AND k.key AND f.lost_at IS NULL
                 AND f.status IN ('claimed', 'starting', 'started') AND f.kind <> 'handler'
               ORDER BY f.key, f.id LIMIT policy.places) AS taken)::int END AS running,
       CASE WHEN d.definition ? 'limit' THEN (
           SELECT coalesce(sum(begun.windows), 0) FROM unnest(s.key || s.former) AS k (key) CROSS JOIN LATERAL (
               SELECT f.windows FROM fires f
               WHERE f.namespace = s.namespace AND f.key = k.key AND f.series = s.series AND f.kind = 'window'
                 AND f.status NOT IN ('skipped', 'expired', 'rejected') AND f.timing IS DISTINCT FROM 'backfill'
               ORDER BY f.fire_time DESC LIMIT (d.definition ->> 'limit')::int) AS begun)::int END AS started
FROM schedules s
JOIN LATERAL position_of(s.namespace, s.key) AS p ON true
JOIN definitions d ON d.namespace = s.namespace AND d.key = s.key AND d.version = s.definition_version
CROSS JOIN LATERAL (
    SELECT coalesce((d.definition ->> 'maxConcurrentRuns')::int, 1) AS places,
           coalesce(d.definition ->> 'overlap', 'allow') AS overlap) AS policy
CROSS JOIN LATERAL (
    SELECT CASE WHEN NOT $3 THEN least(policy.places, $4) + $4 END AS waiting,
           CASE WHEN NOT $3 AND policy.overlap NOT IN ('cancel_previous', 'terminate_previous')
                THEN least(policy.places, $4) + $4 END AS running) AS most
LEFT JOIN LATERAL (
    SELECT sum(c.waiting) AS waiting, sum(c.pending) AS pending, count(*) AS changes
    FROM unnest(s.key || s.former) AS k (key) CROSS JOIN LATERAL (
        SELECT * FROM line_changes WHERE namespace = s.namespace AND key = k.key OFFSET 0) AS c) AS line ON true
LEFT JOIN LATERAL (
    SELECT array_agg(f.fire_time ORDER BY f.fire_time) AS fire_times,
           array_agg(f.status NOT IN ('skipped', 'expired', 'rejected') ORDER BY f.fire_time) AS ran
    FROM unnest(s.key || s.former) AS k (key) CROSS JOIN LATERAL (
        SELECT * FROM fires
        WHERE namespace = s.namespace AND key = k.key AND series = s.series
          AND fire_time > p.cursor AND kind = 'window' OFFSET 0) AS f) AS known ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_object(
               'fire_id', f.id, 'workflow_id', f.workflow_id, 'status', f.status,
               'fire_time', CASE WHEN f.kind = 'rerun' THEN f.decided_at ELSE f.fire_time END,
               'open_at', CASE WHEN f.binding = $6 THEN f.open_at ELSE clock_timestamp() END, 'overlap', f.overlap,
               'stop', f.stop, 'timing', f.timing, 'awaited', CASE WHEN f.awaits IS NOT NULL THEN (
                   SELECT jsonb_agg(jsonb_build_object(
                              'parent', a.parent, 'when', a.wants, 'became', a.became,
                              'reason', a.reason, 'since', a.closed_at) ORDER BY a.number)
                   FROM awaited_of(f.id) AS a) END)
               ORDER BY f.id) AS fires
    FROM unnest(s.key || s.former) AS k (key) CROSS JOIN LATERAL (
        (SELECT r.id FROM fires r
         WHERE r.namespace = s.namespace AND r.key BETWEEN k.key AND k.key AND r.lost_at IS NULL
           AND r.status IN ('claimed', 'starting', 'started') AND r.kind <> 'handler'
         ORDER BY r.key, r.id LIMIT most.running)
        UNION ALL
        (SELECT l.fire_id FROM line l
         WHERE l.namespace = s.namespace AND l.key = k.key AND NOT l.pending
         ORDER BY l.fire_id LIMIT most.waiting)
        UNION ALL
        (SELECT l.fire_id FROM line l
         WHERE l.namespace = s.namespace AND l.key = k.key AND l.pending
         ORDER BY l.fire_id LIMIT most.waiting)
        UNION ALL
        (SELECT l.fire_id FROM line l
         WHERE l.namespace = s.namespace AND l.key = k.key AND l.pending
           AND line.pending > most.waiting AND policy.overlap NOT IN ('queue', 'queue_one')
           AND l.fire_id > (
               SELECT head.id + ((tail.id - head.id) * $5::float8)::bigint
               FROM (SELECT h.fire_id AS id FROM line h
                     WHERE h.namespace = s.namespace AND h.key = k.key AND h.pending
                     ORDER BY h.fire_id OFFSET most.waiting - 1 LIMIT 1) AS head,
                    (SELECT max(h.fire_id) AS id FROM line h
                     WHERE h.namespace = s.namespace AND h.key = k.key AND h.pending) AS tail)
         ORDER BY l.fire_id LIMIT most.waiting)) AS read
    CROSS JOIN LATERAL (SELECT * FROM fires WHERE id = read.id OFFSET 0) AS f
    WHERE $3 OR policy.overlap <> 'allow' OR line.waiting + line.pending > 0) AS in_the_way ON true
WHERE s.namespace = $1 AND s.key = ANY ($2::text[])
ORDER BY p.next_fire_at, s.key
