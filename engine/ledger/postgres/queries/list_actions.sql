-- Of one key, or of all. Only one of the two branches runs, as in backfills.sql. BETWEEN, and the key in
-- ORDER BY: see read_schedules.sql.
SELECT at, by, verb, key, project, reason, workflow_id, before, after FROM (
    (SELECT * FROM actions WHERE $2::text IS NULL AND namespace = $1
     ORDER BY at DESC, id DESC LIMIT $3)
    UNION ALL
    (SELECT each.* FROM (SELECT $2::text UNION SELECT k.key FROM keys_of($1, $2) AS k) AS k (key)
     CROSS JOIN LATERAL (
         SELECT * FROM actions WHERE namespace = $1 AND key BETWEEN k.key AND k.key
         ORDER BY key, at DESC, id DESC LIMIT $3) AS each)) AS found
ORDER BY at DESC, id DESC LIMIT $3
