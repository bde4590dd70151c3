INSERT INTO schedules AS s (namespace, key, project, definition_version, digest, seed, series, suffixed,
                            max_bucket, effective_from, cursor, next_fire_at, workflow,
                            workflow_type, task_queue, external, shadow, grace, enabled, paused_at,
                            paused_reason, rules, cursor_reading, origin, request_id, parents, share)
SELECT $1, n.key, n.project, n.version, n.digest, n.seed, n.series, n.suffixed, n.max_bucket,
       n.effective_from, n.cursor, n.next_fire_at, n.workflow, n.workflow_type, n.task_queue,
       n.external, n.shadow, n.grace, n.enabled,
       CASE WHEN n.paused THEN clock_timestamp() END,
       CASE WHEN n.paused THEN 'paused: true in the file' END, $2, n.reading,
       n.origin, n.request_id, string_to_array(n.parents, ' '), n.share
FROM unnest(:schedule.key::text[], :project::text[], :version::int[], :schedule.digest::text[], :schedule.was::text[], :series::int[],
            :suffixed::bool[], :max_bucket::bigint[], :effective_from::timestamptz[], :cursor::timestamptz[],
            :next_fire_at::timestamptz[], :schedule.workflow::text[], :workflow_type::text[],
            :schedule.task_queue::text[], :schedule.external::bool[], :schedule.starts_nothing::bool[], :schedule.grace::interval[],
            :schedule.enabled::bool[], :paused::bool[], :reading::timestamp[], :origin::text[], :request_id::text[],
            :parents::text[], :schedule.share::text[])
     AS n (key, project, version, digest, seed, series, suffixed, max_bucket, effective_from, cursor,
           next_fire_at, workflow, workflow_type, task_queue, external, shadow, grace, enabled, paused,
           reading, origin, request_id, parents, share)
ON CONFLICT (namespace, key) DO UPDATE
-- A file does not change an operator's pause.
SET project = excluded.project, definition_version = excluded.definition_version,
    digest = excluded.digest, seed = excluded.seed, series = excluded.series, suffixed = excluded.suffixed,
    max_bucket = excluded.max_bucket, effective_from = excluded.effective_from,
    -- A new series has other windows, so the cursor of the old one does not matter.
    cursor = CASE WHEN s.series = excluded.series THEN greatest(s.cursor, excluded.cursor)
                  ELSE excluded.cursor END,
    next_fire_at = excluded.next_fire_at,
    workflow = excluded.workflow, workflow_type = excluded.workflow_type,
    task_queue = excluded.task_queue, external = excluded.external, shadow = excluded.shadow, grace = excluded.grace,
    enabled = excluded.enabled, parents = excluded.parents, share = excluded.share, origin = excluded.origin,
    request_id = coalesce(excluded.request_id, s.request_id), rules = excluded.rules,
    cursor_reading = excluded.cursor_reading, retired_at = NULL, successor = NULL, absent_since = NULL, failures = 0, error = NULL
