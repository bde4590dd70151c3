-- A follow-up run belongs to its fire's window, and is sent to where the fire's own run was: a clean-up
-- reads its history. Its ID is made of the fire's: it is written once. After a silence it may have been
-- sent by a ledger of which this is an old copy, see take_over.sql.
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time, kind,
                   definition_version, workflow_id, workflow_type, task_queue, status, reason,
                   reason_code, timing, input, sealed_input, lease_until, data_from, binding, starting_at)
SELECT $1, f.project, f.key, f.series, f.bucket, f.fire_time, f.fire_time, 'handler',
       f.definition_version, n.workflow_id, n.workflow_type, f.task_queue,
       CASE WHEN n.reason IS NULL THEN 'claimed' ELSE 'rejected' END, n.reason, n.code, 'handler',
       n.input::jsonb, n.sealed_input::jsonb,
       CASE WHEN n.reason IS NULL THEN clock_timestamp() END, f.data_from,
       CASE WHEN f.run_id IS NULL
            THEN coalesce((SELECT b.number FROM bindings b WHERE b.namespace = $1 AND b.current), f.binding)
            ELSE f.binding END,
       (SELECT coalesce(f.closed_at, f.decided_at) FROM retentions r
        WHERE r.namespace = $1 AND r.binding = f.binding AND r.unseen_from >= coalesce(f.closed_at, f.decided_at)
        LIMIT 1)
FROM unnest(:fire_id::bigint[], :workflow_id::text[], :workflow_type::text[], :reason::text[], :reason_code::text[],
            :input::text[], :sealed_input::text[])
     AS n (fire_id, workflow_id, workflow_type, reason, code, input, sealed_input)
JOIN fires f ON f.namespace = $1 AND f.id = n.fire_id
ON CONFLICT (namespace, workflow_id) DO NOTHING
RETURNING workflow_id
