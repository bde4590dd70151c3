-- The newest of a key, or ($3) those still to be laid, by turn. Only one branch runs: under
-- a generic plan, one condition for both would read all that the key ever had. BETWEEN: see read_schedules.sql.
SELECT id, project, key, series, definition_version, first, last, cursor, overlap, include, state,
       ended_reason, reason, requested_by, requested_at, next_at, laid_at, looked_at, ended_at,
       windows, laid, left_alone, error
FROM (
    (SELECT * FROM backfills
     WHERE $3::bool AND namespace = $1 AND key = $2 AND state = 'laying'
     ORDER BY next_at, id DESC LIMIT $4)
    UNION ALL
    (SELECT each.* FROM keys_of($1, $2) AS k CROSS JOIN LATERAL (
         SELECT * FROM backfills
         WHERE NOT $3 AND namespace = $1 AND key BETWEEN k.key AND k.key
         ORDER BY key DESC, id DESC LIMIT $4) AS each)) AS found
ORDER BY CASE WHEN $3 THEN next_at END, id DESC LIMIT $4
