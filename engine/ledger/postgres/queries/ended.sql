-- Fires that ended badly, with no follow-up runs decided yet. The replica that locks one decides.
-- A handler gets the fire's input: without $3 those whose input is sealed are left out.
SELECT f.id AS fire_id, f.key, f.project, f.series, f.bucket, f.fire_time, f.windows, f.last_fire_time, f.kind,
       f.definition_version, f.workflow_id, f.run_id, f.workflow_type, f.task_queue, f.status,
       coalesce(f.error, f.reason) AS error, f.attempts, f.not_undone, CASE WHEN f.sealed_input IS NULL THEN coalesce(f.input, d.definition -> 'input') END AS input,
       coalesce(f.sealed_input, CASE WHEN f.input IS NULL THEN d.definition -> 'sealedInput' END) AS sealed_input,
       d.definition ->> 'onDead' AS on_dead, d.definition ->> 'workflow' AS workflow,
       (SELECT t.rules FROM workflow_types t
        WHERE t.namespace = $1 AND t.task_queue = f.task_queue AND t.type = f.workflow_type
          AND NOT coalesce((d.definition ->> 'external')::bool, false)) AS rules
FROM fires f
JOIN definitions d ON d.namespace = f.namespace AND d.key = f.key AND d.version = f.definition_version
WHERE f.namespace = $1 AND f.status IN ('failed', 'timed_out', 'rejected', 'terminated')
  AND f.followed_at IS NULL AND f.merged_at IS NULL AND f.kind <> 'handler' AND f.counted IS DISTINCT FROM 'unread'
  AND ($3 OR f.status = 'terminated' OR d.definition -> 'onDead' IS NULL
       OR (f.sealed_input IS NULL AND (f.input IS NOT NULL OR d.definition -> 'sealedInput' IS NULL)))
ORDER BY f.id LIMIT $2
FOR UPDATE OF f SKIP LOCKED
