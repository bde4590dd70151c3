-- The newest fires of a reason code ($2) and of these statuses ($4), of a key ($3) where one is given,
-- in $6 <= fire_time <= $7.
-- Each status is read in the order of its index, so that none with many rows hides one with few.
-- Only one branch runs.
SELECT project, key, series, bucket, fire_time, windows, last_fire_time, workflow_id, run_id,
       status, reason, reason_code, timing, started_at, closed_at, lag_ms, error, replica,
       definition_version, history, failing, starting_at, duration_ms, tries, step_retries
FROM (
    (SELECT found.* FROM unnest($4::text[]) AS wanted (status) CROSS JOIN LATERAL
        (SELECT * FROM fire_history
         WHERE $3::text IS NULL AND namespace = $1 AND reason_code = $2 AND reason IS NOT NULL
           AND status = wanted.status AND fire_time >= $6 AND fire_time <= $7
         ORDER BY fire_time DESC, key LIMIT $5) AS found)
    UNION ALL
    (SELECT found.* FROM unnest($4::text[]) AS wanted (status) CROSS JOIN keys_of($1, $3) AS k CROSS JOIN LATERAL
        (SELECT * FROM fire_history
         WHERE namespace = $1 AND key = k.key AND reason_code = $2 AND reason IS NOT NULL
           AND status = wanted.status AND fire_time >= $6 AND fire_time <= $7
         ORDER BY fire_time DESC, key LIMIT $5) AS found)) AS found
ORDER BY fire_time DESC, key LIMIT $5
