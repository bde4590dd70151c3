-- Windows past their grace that have no class: no replica has decided them, or their start has no answer.
-- Each lane is one index descent, as in probe.sql; the lanes are found by their index too. A schedule
-- whose plan fails, or that is on hold, has no next fire time: the caller finds its window.
WITH RECURSIVE lanes AS (
    (SELECT p.project, p.lane FROM positions p
     WHERE p.namespace = $1 AND p.due_at IS NOT NULL ORDER BY p.project, p.lane LIMIT 1)
    UNION ALL
    SELECT following.project, following.lane
    FROM lanes l CROSS JOIN LATERAL (
        SELECT p.project, p.lane FROM positions p
        WHERE p.namespace = $1 AND p.due_at IS NOT NULL AND (p.project, p.lane) > (l.project, l.lane)
        ORDER BY p.project, p.lane LIMIT 1) AS following
), undecided AS (
    SELECT s.key, due.next_fire_at AS fire_time
    FROM lanes CROSS JOIN LATERAL (
        SELECT p.key, p.next_fire_at FROM positions p
        WHERE p.namespace = $1 AND p.project = lanes.project AND p.lane = lanes.lane
          AND p.due_at <= (SELECT clock_timestamp())
        ORDER BY p.due_at LIMIT $2) AS due
    JOIN schedules s ON s.namespace = $1 AND s.key = due.key
    WHERE s.failures = 0 AND s.retired_at IS NULL AND s.paused_at IS NULL AND s.enabled
      AND due.next_fire_at < (SELECT clock_timestamp()) - s.grace
    ORDER BY due.next_fire_at LIMIT $2
), failing AS (
    SELECT s.key, NULL::timestamptz AS fire_time FROM schedules s
    WHERE s.namespace = $1 AND s.failures > 0 AND s.retired_at IS NULL AND s.paused_at IS NULL
    ORDER BY s.key LIMIT $2
), unanswered AS (
    SELECT f.key, f.fire_time, f.status, f.owner, f.error
    FROM fires f JOIN schedules s ON s.namespace = f.namespace AND s.key = f.key
    WHERE f.namespace = $1 AND f.status IN ('claimed', 'starting') AND f.timing IS DISTINCT FROM 'backfill'
      AND f.kind <> 'handler'
      AND CASE WHEN f.status = 'starting' THEN f.starting_at ELSE f.lease_until END
          < (SELECT clock_timestamp()) - s.grace
    ORDER BY f.lease_until LIMIT $2
), found AS (
    SELECT key, fire_time, NULL AS status, NULL AS owner, NULL AS answer FROM undecided
    UNION ALL SELECT key, fire_time, NULL, NULL, NULL FROM failing
    UNION ALL SELECT key, fire_time, status, owner, error FROM unanswered)
SELECT found.key, s.project, s.task_queue, s.workflow, s.workflow_type, s.lane = '' AS external, s.grace, found.fire_time,
       found.status, found.owner, found.answer, s.error, s.rules,
       CASE WHEN found.fire_time IS NULL THEN p.cursor END AS cursor,
       CASE WHEN found.fire_time IS NULL THEN d.definition END AS definition
FROM found
JOIN schedules s ON s.namespace = $1 AND s.key = found.key
JOIN definitions d ON d.namespace = $1 AND d.key = found.key AND d.version = s.definition_version
JOIN LATERAL position_of($1, found.key) AS p ON true
ORDER BY found.fire_time, found.key LIMIT $2
