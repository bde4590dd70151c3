-- The first definition of a key. No ON CONFLICT, as define_schedules.sql has it: the key and the request
-- ID are locked by their unique indexes, and a second one of either has to fail.
INSERT INTO schedules (namespace, key, project, definition_version, digest, seed, series, suffixed,
                       max_bucket, effective_from, cursor, next_fire_at, workflow,
                       workflow_type, task_queue, external, shadow, grace, enabled, paused_at,
                       paused_reason, rules, cursor_reading, origin, request_id, parents, share)
VALUES ($1, :schedule.key, :project, :version, :schedule.digest, :schedule.was, :series, :suffixed, :max_bucket, :effective_from,
        :cursor, :next_fire_at, :schedule.workflow, :workflow_type, :schedule.task_queue, :schedule.external,
        :schedule.starts_nothing, :schedule.grace, :schedule.enabled,
        CASE WHEN :paused THEN clock_timestamp() END,
        CASE WHEN :paused THEN 'paused: true in the file' END, $2, :reading, :origin, :request_id,
        string_to_array(:parents, ' '), :schedule.share)
