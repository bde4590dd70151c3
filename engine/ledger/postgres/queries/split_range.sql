-- One row becomes several that record the same for fewer windows each. Only the row that was read:
-- it may have grown since, and the pieces would lack the new part.
WITH gone AS (
    DELETE FROM fires
    WHERE namespace = $1 AND key = $2 AND series = $3 AND fire_time = $4 AND kind = 'window'
      AND windows > 1 AND windows = $5 AND last_fire_time = $6
    RETURNING *)
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, kind, windows,
                   last_fire_time, definition_version, workflow_id, workflow_type, task_queue,
                   status, reason, reason_code, timing, missed, attempts, decided_at, error, replica, history, merged_at, dealt_at, followed_at)
SELECT gone.namespace, gone.project, gone.key, gone.series, p.bucket, p.fire_time, gone.kind,
       p.windows, p.last, gone.definition_version, p.workflow_id, gone.workflow_type,
       gone.task_queue, gone.status, gone.reason, gone.reason_code, gone.timing, gone.missed, gone.attempts,
       gone.decided_at, gone.error, gone.replica, gone.history, gone.merged_at,
       gone.dealt_at, gone.followed_at
FROM gone
CROSS JOIN unnest(:window.bucket::bigint[], :window.fire_time::timestamptz[], :windows::int[], :last::timestamptz[], :workflow_id::text[])
     AS p (bucket, fire_time, windows, last, workflow_id)
RETURNING workflow_id
