-- A window from before the schedule was declared: nobody owed it.
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
                   definition_version, workflow_id, workflow_type, task_queue, status, timing,
                   overlap, lease_until)
VALUES ($1, $2, $3, $4, $5, $6, $6, $7, $8, $9, $10, $11, 'backfill', $12,
        CASE WHEN $11 = 'claimed' THEN clock_timestamp() END)
ON CONFLICT DO NOTHING
RETURNING id
