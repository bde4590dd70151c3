-- A run of ours that the ledger does not know: the commit that claimed or requested it was lost.
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time, kind,
                   definition_version, workflow_id, workflow_type, task_queue, status, timing,
                   run_id, started_at, history, first_run_id, data_from, binding)
SELECT $1, s.project, s.key, $3, $4, $5, $5,
       CASE WHEN $7 IN ('manual', 'rerun', 'handler') THEN $7 ELSE 'window' END,
       least($6, s.definition_version), :workflow_id, s.workflow_type, s.task_queue, 'started', $7, :run_id, :started_at,
       jsonb_build_array(jsonb_build_object('status', 'lost', 'until', clock_timestamp())), :first_run_id,
       coalesce($8::timestamptz, '-infinity'), $9
FROM schedules s WHERE s.namespace = $1 AND s.key = $2
ON CONFLICT DO NOTHING
RETURNING id
