-- Newest first, filtered by lines as in list_schedules.sql; of a page those that follow the run :behind of the time :at.
SELECT project, key, series, bucket, fire_time, windows, last_fire_time, kind, workflow_id, run_id,
       workflow_type, task_queue, status, reason, error, attempts, started_at, died_at,
       definition_version, input, not_undone, nullif(cause, status) AS given_up, starting_at, duration_ms,
       tries, step_retries, sealed_input
FROM dead_letters
WHERE namespace = $1
  AND workflow_id = :workflow_id
  AND key IN (SELECT k.key FROM keys_of($1, :key) AS k)
  AND bucket = :bucket
  AND fire_time <= :at AND (fire_time < :at OR workflow_id > :behind)
ORDER BY fire_time DESC, workflow_id LIMIT :limit
