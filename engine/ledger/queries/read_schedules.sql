SELECT s.key, s.project, s.definition_version, s.digest, s.series, s.suffixed, s.max_bucket,
       s.effective_from, s.cursor, s.workflow_type, s.retired_at, s.paused_at, s.absent_since,
       s.failures, s.rules, s.cursor_reading, d.definition
FROM schedules s
JOIN definitions d ON d.namespace = s.namespace AND d.key = s.key AND d.version = s.definition_version
WHERE s.namespace = $1 AND s.key = ANY ($2::text[])
ORDER BY s.next_fire_at, s.key
