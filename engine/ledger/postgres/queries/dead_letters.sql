-- Of one run ($3), of one key ($2), or of all; of those only the ones that follow the run $7 of the fire time $6, the
-- last one of the page before. Only one branch runs, as in list_fires.sql.
SELECT project, key, series, bucket, fire_time, windows, last_fire_time, kind, workflow_id, run_id,
       workflow_type, task_queue, status, reason, error, attempts, started_at, died_at,
       definition_version, input, not_undone, nullif(cause, status) AS given_up, starting_at, duration_ms,
       tries, step_retries, sealed_input
FROM (
    (SELECT * FROM dead_letters
     WHERE namespace = $1 AND workflow_id = $3 AND ($2::text IS NULL OR key IN (SELECT k.key FROM keys_of($1, $2) AS k))
       AND ($4::bigint IS NULL OR bucket = $4))
    UNION ALL
    (SELECT * FROM dead_letters
     WHERE $3::text IS NULL AND namespace = $1 AND key IN (SELECT k.key FROM keys_of($1, $2) AS k) AND ($4::bigint IS NULL OR bucket = $4)
       AND fire_time <= coalesce($6::timestamptz, 'infinity')
       AND (fire_time < coalesce($6::timestamptz, 'infinity') OR workflow_id > $7)
     ORDER BY fire_time DESC, workflow_id LIMIT $5)
    UNION ALL
    (SELECT * FROM dead_letters
     WHERE $3::text IS NULL AND $2::text IS NULL AND namespace = $1
       AND ($4::bigint IS NULL OR bucket = $4)
       AND fire_time <= coalesce($6::timestamptz, 'infinity')
       AND (fire_time < coalesce($6::timestamptz, 'infinity') OR workflow_id > $7)
     ORDER BY fire_time DESC, workflow_id LIMIT $5)) AS found
ORDER BY fire_time DESC, workflow_id LIMIT $5
