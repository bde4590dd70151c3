-- Windows from before the schedule was declared, which were never owed. A window whose ID or place
-- another row has is left out; the others are written. The owner sends those with a token.
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
                   definition_version, workflow_id, workflow_type, task_queue, status, timing,
                   overlap, owner, replica, token, lease_until, starting_at, attempts, binding)
SELECT $1, $2, $3, d.series, d.bucket, d.fire_time, d.fire_time, $4, d.workflow_id, $5, $6,
       CASE WHEN d.token IS NULL THEN 'queued' ELSE 'starting' END, 'backfill', $7,
       CASE WHEN d.token IS NOT NULL THEN $8 END, CASE WHEN d.token IS NOT NULL THEN $8 END, d.token,
       CASE WHEN d.token IS NOT NULL THEN clock_timestamp() + $9::interval END,
       CASE WHEN d.token IS NOT NULL THEN clock_timestamp() END,
       CASE WHEN d.token IS NULL THEN 0 ELSE 1 END, $10
FROM unnest(:series::int[], :bucket::bigint[], :fire_time::timestamptz[], :workflow_id::text[], :token::uuid[])
     AS d (series, bucket, fire_time, workflow_id, token)
ORDER BY d.fire_time
ON CONFLICT DO NOTHING
RETURNING id, workflow_id, starting_at, data_from,
          (SELECT t.rules FROM workflow_types t
           WHERE t.namespace = $1 AND t.task_queue = fires.task_queue AND t.type = fires.workflow_type) AS rules
