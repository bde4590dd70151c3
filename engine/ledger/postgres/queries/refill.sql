-- Windows without a run get one; their former state stays in the history. A row written
-- since it was read is left out. The owner sends those with a token.
UPDATE fires f
SET project = $2, status = CASE WHEN d.token IS NULL THEN 'queued' ELSE 'starting' END,
    timing = 'backfill', reason = NULL, reason_code = NULL, error = NULL, dealt_at = NULL, followed_at = NULL, overlap = $7,
    definition_version = $4, workflow_type = $5, task_queue = $6,
    owner = CASE WHEN d.token IS NOT NULL THEN $8 END,
    replica = CASE WHEN d.token IS NOT NULL THEN $8 ELSE f.replica END,
    token = d.token,
    lease_until = CASE WHEN d.token IS NOT NULL THEN clock_timestamp() + $9::interval END,
    starting_at = CASE WHEN d.token IS NOT NULL THEN clock_timestamp() END,
    attempts = CASE WHEN d.token IS NULL THEN 0 ELSE 1 END, binding = $10,
    missed = 0, missed_from = NULL, data_from = NULL,
    history = history || jsonb_build_object('status', status, 'reason', reason, 'error', error,
                                            'reason_code', reason_code,
                                            'until', clock_timestamp())
FROM unnest(:series::int[], :bucket::bigint[], :fire_time::timestamptz[], :workflow_id::text[], :token::uuid[])
     AS d (series, bucket, fire_time, workflow_id, token)
WHERE f.namespace = $1 AND f.key = $3 AND f.workflow_id = d.workflow_id
  AND f.fire_time = d.fire_time AND f.windows = 1
  AND f.status IN ('skipped', 'expired', 'rejected', 'unvouched') AND f.run_id IS NULL
RETURNING f.id, f.workflow_id, f.starting_at, f.data_from,
          (SELECT t.rules FROM workflow_types t
           WHERE t.namespace = $1 AND t.task_queue = f.task_queue AND t.type = f.workflow_type) AS rules
