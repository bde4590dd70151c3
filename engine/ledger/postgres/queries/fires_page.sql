-- The fires of a key ($2), and of its former ones, in $3 <= fire_time <= $4, newest first, of a status ($5) and a reason code ($6), where
-- given. Of those at $4 only the ones whose run follows $7: with the last row of a page these are the rest. Each
-- branch answers one combination, and only one runs; see list_fires.sql for the reasons. The inner limits are lower
-- than there, because a plan that sorts by the run reads as many rows.
SELECT project, key, series, bucket, fire_time, windows, last_fire_time, workflow_id, run_id,
       status, reason, reason_code, timing, started_at, closed_at, lag_ms, error, replica,
       definition_version, history, failing, starting_at, duration_ms, tries, step_retries
FROM (
    (SELECT each.* FROM keys_of($1, $2) AS k CROSS JOIN LATERAL (
         SELECT * FROM (
             SELECT * FROM fire_history
             WHERE $5::text IS NULL AND $6::text IS NULL AND namespace = $1 AND key = k.key
               AND fire_time >= $3 AND fire_time <= $4 AND (fire_time < $4 OR workflow_id > $7)
             ORDER BY fire_time DESC, workflow_id LIMIT 1000) AS few LIMIT $9) AS each)
    UNION ALL
    (SELECT each.* FROM keys_of($1, $2) AS k CROSS JOIN LATERAL (
         SELECT * FROM (
             SELECT * FROM fire_history
             WHERE $6::text IS NULL AND $5 NOT IN ('claimed', 'starting', 'completed')
               AND namespace = $1 AND key = k.key AND status = $5
               AND (status IN ('queued', 'failed', 'cancelled', 'terminated', 'timed_out', 'skipped',
                               'expired', 'rejected', 'unvouched') OR lost_at IS NOT NULL)
               AND fire_time >= $3 AND fire_time <= $4 AND (fire_time < $4 OR workflow_id > $7)
             ORDER BY fire_time DESC, workflow_id LIMIT 1000) AS few LIMIT $9) AS each)
    UNION ALL
    (SELECT each.*
     FROM (SELECT id, key FROM fires
           WHERE $6::text IS NULL AND $5 IN ('claimed', 'starting', 'started') AND namespace = $1
             AND status IN ('claimed', 'starting', 'started') AND lost_at IS NULL
           OFFSET 0) AS open
     CROSS JOIN LATERAL (SELECT workflow_id FROM fires WHERE id = open.id AND status = $5 OFFSET 0) AS run
     CROSS JOIN LATERAL (SELECT * FROM fire_history
                         WHERE namespace = $1 AND workflow_id = run.workflow_id OFFSET 0) AS each
     WHERE open.key IN (SELECT k.key FROM keys_of($1, $2) AS k) AND each.fire_time >= $3 AND each.fire_time <= $4
       AND (each.fire_time < $4 OR each.workflow_id > $7)
     ORDER BY each.fire_time DESC, each.workflow_id LIMIT 1000)
    UNION ALL
    (SELECT each.* FROM keys_of($1, $2) AS k CROSS JOIN LATERAL (
         SELECT * FROM (
             SELECT * FROM fire_history
             WHERE $6::text IS NULL AND $5 = 'completed' AND namespace = $1 AND key = k.key AND status = 'completed'
               AND fire_time >= $3 AND fire_time <= $4 AND (fire_time < $4 OR workflow_id > $7)
             ORDER BY fire_time DESC, workflow_id LIMIT 1000) AS few LIMIT $9) AS each)
    UNION ALL
    (SELECT found.* FROM unnest($8::text[]) AS wanted (status) CROSS JOIN keys_of($1, $2) AS k CROSS JOIN LATERAL
        (SELECT * FROM fire_history
         WHERE namespace = $1 AND key = k.key AND reason_code = $6 AND reason IS NOT NULL
           AND status = wanted.status AND ($5::text IS NULL OR status = $5)
           AND fire_time >= $3 AND fire_time <= $4 AND (fire_time < $4 OR workflow_id > $7)
         ORDER BY fire_time DESC, workflow_id LIMIT $9) AS found)) AS found
ORDER BY fire_time DESC, workflow_id LIMIT $9
