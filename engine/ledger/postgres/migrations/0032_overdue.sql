-- beside: 10
-- Windows that have not fired, for readers without Python. As in overdue.sql and in the causes of the watch, as
-- far as the database knows them: it knows neither whether Temporal answers nor SCHED_HEARTBEAT, so that a
-- worker counts as alive for two and a half heartbeats of 10 s, the default.

CREATE VIEW overdue AS
WITH alive AS (
    SELECT r.namespace, r.project, r.task_queue, r.types FROM replicas r
    WHERE r.seen_at >= clock_timestamp() - interval '25 seconds'
), late AS (
    SELECT p.namespace, p.key, p.next_fire_at AS fire_time, NULL::text AS status, NULL::text AS answer
    FROM positions p JOIN schedules s ON s.namespace = p.namespace AND s.key = p.key
    WHERE p.due_at <= clock_timestamp() AND p.next_fire_at < clock_timestamp() - s.grace
      AND s.failures = 0 AND s.retired_at IS NULL AND s.paused_at IS NULL AND s.enabled
    UNION ALL
    -- Its plan fails, so that it has no next fire time.
    SELECT s.namespace, s.key, NULL, NULL, NULL FROM schedules s
    WHERE s.failures > 0 AND s.retired_at IS NULL AND s.paused_at IS NULL
    UNION ALL
    SELECT f.namespace, f.key, f.fire_time, f.status, f.error
    FROM fires f JOIN schedules s ON s.namespace = f.namespace AND s.key = f.key
    WHERE f.status IN ('claimed', 'starting') AND f.timing IS DISTINCT FROM 'backfill' AND f.kind <> 'handler'
      AND CASE WHEN f.status = 'starting' THEN f.starting_at ELSE f.lease_until END < clock_timestamp() - s.grace)
SELECT s.namespace, s.project, s.key, late.fire_time, clock_timestamp() - late.fire_time AS late,
       CASE
           WHEN there.workers = 0 THEN 'no_replica'
           WHEN NOT s.external AND there.on_queue = 0 THEN 'task_queue_unserved'
           WHEN s.failures > 0 THEN 'plan_failed'
           WHEN late.status IS NOT NULL THEN 'no_answer'
           WHEN NOT s.external AND there.able = 0 THEN 'workflow_unknown'
           ELSE 'undecided'
       END AS cause,
       coalesce(late.answer, s.error) AS error, s.workflow, s.task_queue
FROM late
JOIN schedules s ON s.namespace = late.namespace AND s.key = late.key
CROSS JOIN LATERAL (
    SELECT count(*) AS workers, count(*) FILTER (WHERE a.task_queue = s.task_queue) AS on_queue,
           count(*) FILTER (WHERE a.task_queue = s.task_queue AND s.workflow_type = ANY (a.types)) AS able
    FROM alive a WHERE a.namespace = s.namespace AND a.project = s.project) AS there;
COMMENT ON VIEW overdue IS 'Windows past their grace that are neither started nor decided otherwise, and the probable cause.';
