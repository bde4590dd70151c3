-- A page of the rows between two moments ($3, $4), from behind one row ($5, $6) on. The first page
-- begins with what reaches into the stretch from before it: of each series a few rows are enough,
-- as in covering_fire.sql. BETWEEN, and the key in ORDER BY: see read_schedules.sql;
-- coalesce: as in awaited_of. From the table, because the view is a contract of users.
SELECT f.series, f.bucket, f.fire_time, f.last_fire_time, f.windows, f.status, f.reason,
       f.reason_code, f.timing, f.missed,
       f.missed_from, f.definition_version, f.workflow_id, f.run_id, f.started_at, f.closed_at,
       f.decided_at, f.waited_since, f.attempts, f.replica, f.history, coalesce(f.second_runs, '{}') AS second_runs
FROM (
    (SELECT found.* FROM schedules s
     CROSS JOIN LATERAL generate_series(1, s.series) AS n
     CROSS JOIN LATERAL (
         SELECT * FROM fires f
         WHERE f.namespace = $1 AND f.key = s.key AND f.kind = 'window' AND f.series = n
           AND f.fire_time < $3
         ORDER BY f.fire_time DESC LIMIT 8) AS found
     WHERE $5::timestamptz IS NULL AND s.namespace = $1 AND s.key IN (SELECT k.key FROM keys_of($1, $2) AS k)
       AND found.last_fire_time >= $3)
    UNION ALL
    (SELECT each.* FROM keys_of($1, $2) AS k CROSS JOIN LATERAL (
         SELECT * FROM fires
         WHERE namespace = $1 AND key BETWEEN k.key AND k.key AND coalesce(kind, '') = 'window'
           AND fire_time >= greatest($3, coalesce($5::timestamptz, $3)) AND fire_time <= $4
           AND ($5::timestamptz IS NULL OR (fire_time, series) > ($5::timestamptz, $6::int))
         ORDER BY key DESC, fire_time, series LIMIT $7) AS each)) AS f
ORDER BY f.fire_time, f.series LIMIT $7
