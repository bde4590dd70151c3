-- `version` changes with every write to the row: what was archived is what leaves, or it stays.
SELECT f.id, f.xmin::text AS version, f.project, f.series, f.bucket, f.fire_time, f.last_fire_time,
       f.windows, f.kind, f.definition_version, f.workflow_type, f.task_queue, f.status, f.reason,
       f.timing, f.missed, f.merged_at,
       f.error IS NOT NULL OR f.history <> '[]' OR f.input IS NOT NULL AS telling,
       greatest(f.last_fire_time, f.decided_at, f.closed_at) AS rested_since,
       (to_jsonb(f) - '{owner,token,lease_until,seen_at,open_at,stop_at,stop_grace}'::text[])::text AS detail
FROM fires f
WHERE f.namespace = $1 AND f.key = $2 AND f.fire_time >= $3 AND f.fire_time < $4
  AND ($6::bool OR f.kind <> 'window')
ORDER BY f.fire_time, f.id LIMIT $5
