-- Windows without a run get one; their former state stays in the history. A row written
-- since it was read is left out. The owner sends those with a token.
UPDATE fires f
SET project = d.project, status = d.status, timing = 'backfill', reason = NULL, reason_code = NULL, error = NULL,
    dealt_at = NULL, followed_at = NULL, overlap = d.overlap, definition_version = d.version,
    workflow_type = d.workflow_type, task_queue = d.task_queue,
    owner = CASE WHEN d.token IS NOT NULL THEN $2 END,
    replica = CASE WHEN d.token IS NOT NULL THEN $2 ELSE f.replica END,
    token = d.token,
    lease_until = CASE WHEN d.token IS NOT NULL THEN clock_timestamp() + $3::interval END,
    starting_at = CASE WHEN d.token IS NOT NULL THEN clock_timestamp() END,
    attempts = CASE WHEN d.token IS NULL THEN 0 ELSE 1 END, binding = $4,
    missed = 0, missed_from = NULL, data_from = NULL,
    history = history || jsonb_build_object('status', f.status, 'reason', f.reason, 'error', f.error,
                                            'reason_code', f.reason_code,
                                            'until', clock_timestamp())
FROM unnest(:project::text[], :key::text[], :fire_time::timestamptz[], :definition_version::int[], :workflow_id::text[],
            :workflow_type::text[], :task_queue::text[], :status::text[], :overlap::text[], :token::uuid[])
     AS d (project, key, fire_time, version, workflow_id, workflow_type, task_queue, status, overlap, token)
WHERE f.namespace = $1 AND f.key = d.key AND f.workflow_id = d.workflow_id
  AND f.fire_time = d.fire_time AND f.windows = 1
  AND f.status IN ('skipped', 'expired', 'rejected', 'unvouched') AND f.run_id IS NULL
RETURNING f.id, f.workflow_id, f.starting_at, f.data_from,
          (SELECT t.rules FROM workflow_types t
           WHERE t.namespace = $1 AND t.task_queue = f.task_queue AND t.type = f.workflow_type) AS rules
