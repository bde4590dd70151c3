-- A window that already has a fire is decided: it is not returned, so it does not start again. So is one
-- whose id has a fire: after an edit was lost, that of a run of its series. Without ON CONFLICT one such
-- window would roll back the whole tick.
INSERT INTO fires (namespace, project, key, kind, series, bucket, fire_time, windows, last_fire_time,
                   definition_version, workflow_id, workflow_type, task_queue, status, reason,
                   reason_code, timing, missed, missed_from, owner, replica, token, lease_until, starting_at, attempts, awaits,
                   overlap, waited_since, data_from, binding, input, sealed_input, options)
SELECT $1, d.project, d.key, d.kind, d.series, d.bucket, d.fire_time, d.windows, d.last_fire_time,
       d.version, d.workflow_id, d.workflow_type, d.task_queue, d.status, d.reason,
       d.reason_code, d.timing, d.missed, d.missed_from,
       CASE WHEN d.status = 'starting' THEN $2 END,
       CASE WHEN d.status = 'starting' THEN $2 END,
       d.token,
       CASE d.status WHEN 'starting' THEN clock_timestamp() + $3::interval
                     WHEN 'claimed' THEN coalesce(d.not_before, clock_timestamp()) END,
       CASE WHEN d.status = 'starting' THEN clock_timestamp() END,
       CASE WHEN d.status = 'starting' THEN 1 ELSE 0 END,
       d.awaits::jsonb, d.overlap, d.waited_since, begins.data_from, $4, d.input::jsonb,
       d.sealed_input::jsonb, d.options::jsonb
FROM (SELECT *, count(*) OVER (PARTITION BY u.key) = 1 AS alone FROM unnest(
            :project::text[], :key::text[], :series::int[], :bucket::bigint[], :fire_time::timestamptz[], :windows::int[],
            :last_fire_time::timestamptz[], :definition_version::int[], :workflow_id::text[], :workflow_type::text[],
            :task_queue::text[], :status::text[], :reason::text[], :reason_code::text[], :timing::text[],
            :missed::int[], :missed_from::timestamptz[], :not_before::timestamptz[], :token::uuid[], :awaits::text[],
            :overlap::text[], :waited_since::timestamptz[], :kind::text[], :input::text[], :sealed_input::text[],
            :options::text[])
     AS u (project, key, series, bucket, fire_time, windows, last_fire_time, version, workflow_id,
           workflow_type, task_queue, status, reason, reason_code, timing, missed, missed_from, not_before,
           token, awaits, overlap, waited_since, kind, input, sealed_input, options)) AS d
-- The trigger handles several of a key: in time order, each depends on the one before it.
LEFT JOIN LATERAL data_from_of($1, d.key, d.fire_time) AS begins ON d.status = 'starting' AND d.alone
ORDER BY d.key, d.fire_time
ON CONFLICT DO NOTHING
RETURNING id, workflow_id, starting_at, data_from,
          (SELECT t.rules FROM workflow_types t
           WHERE t.namespace = $1 AND t.task_queue = fires.task_queue AND t.type = fires.workflow_type) AS rules
