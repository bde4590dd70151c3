-- The newest fires of a key ($2), and of its former ones, and of a status ($3), where given, in $5 <= fire_time <= $6.
-- Each branch answers one combination, and only one runs: under a generic plan, `$2 IS NULL OR key = $2` would read every
-- row from the newest on. The status is tested twice, because a parameter alone does not match the
-- predicate of a partial index. The inner limit lets the planner expect few rows, which an unknown
-- number does not; of each key no more is read than is asked for.
SELECT project, key, series, bucket, fire_time, windows, last_fire_time, workflow_id, run_id,
       status, reason, reason_code, timing, started_at, closed_at, lag_ms, error, replica,
       definition_version, history, failing, starting_at, duration_ms, tries, step_retries
FROM (
    (SELECT * FROM fire_history
     WHERE $2::text IS NULL AND $3::text IS NULL AND namespace = $1
       AND fire_time >= $5 AND fire_time <= $6
     ORDER BY fire_time DESC, key LIMIT 10000)
    UNION ALL
    (SELECT each.* FROM keys_of($1, $2) AS k CROSS JOIN LATERAL (
         SELECT * FROM (
             SELECT * FROM fire_history
             WHERE $3::text IS NULL AND namespace = $1 AND key = k.key
               AND fire_time >= $5 AND fire_time <= $6
             ORDER BY fire_time DESC, key LIMIT 10000) AS few LIMIT $4) AS each)
    UNION ALL
    (SELECT * FROM fire_history
     WHERE $2::text IS NULL AND $3 NOT IN ('claimed', 'starting', 'completed')
       AND namespace = $1 AND status = $3
       AND (status IN ('queued', 'failed', 'cancelled', 'terminated', 'timed_out', 'skipped',
                       'expired', 'rejected', 'unvouched') OR lost_at IS NOT NULL)
       AND fire_time >= $5 AND fire_time <= $6
     ORDER BY fire_time DESC, key LIMIT 10000)
    UNION ALL
    (SELECT each.* FROM keys_of($1, $2) AS k CROSS JOIN LATERAL (
         SELECT * FROM (
             SELECT * FROM fire_history
             WHERE $3 NOT IN ('claimed', 'starting', 'completed')
               AND namespace = $1 AND key = k.key AND status = $3
               AND (status IN ('queued', 'failed', 'cancelled', 'terminated', 'timed_out', 'skipped',
                               'expired', 'rejected', 'unvouched') OR lost_at IS NOT NULL)
               AND fire_time >= $5 AND fire_time <= $6
             ORDER BY fire_time DESC, key LIMIT 10000) AS few LIMIT $4) AS each)
    UNION ALL
    -- Open fires that are not in line have no order and are few: all of them are found, in the index that has no
    -- others, and then read one by one. The planner takes them for many, because it does not know that most of
    -- the runs that never closed may be lost. If it had to read the table, the index with all that wait would
    -- seem as cheap, now and then cheaper, as its statistics are a sample.
    (SELECT each.*
     FROM (SELECT id, key FROM fires
           WHERE $3 IN ('claimed', 'starting', 'started') AND namespace = $1
             AND status IN ('claimed', 'starting', 'started') AND lost_at IS NULL
           OFFSET 0) AS open
     CROSS JOIN LATERAL (SELECT workflow_id FROM fires WHERE id = open.id AND status = $3 OFFSET 0) AS run
     CROSS JOIN LATERAL (SELECT * FROM fire_history
                         WHERE namespace = $1 AND workflow_id = run.workflow_id OFFSET 0) AS each
     WHERE ($2::text IS NULL OR open.key IN (SELECT k.key FROM keys_of($1, $2) AS k))
       AND each.fire_time >= $5 AND each.fire_time <= $6
     ORDER BY each.fire_time DESC, each.key LIMIT 10000)
    UNION ALL
    (SELECT * FROM fire_history
     WHERE $2::text IS NULL AND $3 = 'completed' AND namespace = $1 AND status = 'completed'
       AND fire_time >= $5 AND fire_time <= $6
     ORDER BY fire_time DESC, key LIMIT 10000)
    UNION ALL
    (SELECT each.* FROM keys_of($1, $2) AS k CROSS JOIN LATERAL (
         SELECT * FROM (
             SELECT * FROM fire_history
             WHERE $3 = 'completed' AND namespace = $1 AND key = k.key AND status = 'completed'
               AND fire_time >= $5 AND fire_time <= $6
             ORDER BY fire_time DESC, key LIMIT 10000) AS few LIMIT $4) AS each)) AS found
ORDER BY fire_time DESC, key LIMIT $4
