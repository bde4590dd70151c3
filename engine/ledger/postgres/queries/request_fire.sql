-- A requested run: manual, or a rerun. Requested twice under one ID, it is written once.
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time, kind,
                   definition_version, workflow_id, workflow_type, task_queue, status, reason,
                   reason_code, timing, overlap, input, sealed_input, options, lease_until)
VALUES ($1, :project, :key, :series, :bucket, :fire_time, :fire_time, :kind, :definition_version, :workflow_id,
        :workflow_type, :task_queue, :status, :reason, :reason_code, :timing, :overlap, :input::jsonb,
        :sealed_input::jsonb, :options::jsonb,
        CASE WHEN :status = 'claimed' THEN coalesce(:not_before, clock_timestamp()) END)
ON CONFLICT (namespace, workflow_id) DO NOTHING
RETURNING id
