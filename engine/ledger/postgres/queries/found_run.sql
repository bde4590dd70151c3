-- A run of ours that the ledger does not know: the commit that claimed or requested it was lost.
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time, kind,
                   definition_version, workflow_id, workflow_type, task_queue, status, timing,
                   run_id, started_at, history, first_run_id, data_from, binding)
SELECT $1, s.project, s.key, $3, $4, $5, $5,
       CASE WHEN $8 IN ('manual', 'rerun', 'handler') THEN $8 ELSE 'window' END,
       least($6, s.definition_version), $7, s.workflow_type, s.task_queue, 'started', $8, $9, $10,
       jsonb_build_array(jsonb_build_object('status', 'lost', 'until', clock_timestamp())), $11,
       coalesce($12::timestamptz, '-infinity'), $13
FROM schedules s WHERE s.namespace = $1 AND s.key = $2
ON CONFLICT DO NOTHING
RETURNING id
