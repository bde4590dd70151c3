-- The first definition of a key. No ON CONFLICT, as define_schedules.sql has it: the key and the request
-- ID are locked by their unique indexes, and a second one of either has to fail.
INSERT INTO schedules (namespace, key, project, definition_version, digest, series, suffixed,
                       max_bucket, effective_from, cursor, next_fire_at, workflow,
                       workflow_type, task_queue, external, grace, enabled, paused_at,
                       paused_reason, rules, cursor_reading, origin, request_id, parents)
VALUES ($1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
        CASE WHEN $19 THEN clock_timestamp() END,
        CASE WHEN $19 THEN 'paused: true in the file' END, $2, $20, $21, $22,
        string_to_array($23, ' '))
