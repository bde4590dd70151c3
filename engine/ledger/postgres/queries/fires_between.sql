-- A page of the rows of windows of every series between two moments ($3, $4), from behind one row ($5, $6) on: a
-- moment is one window of the key. The first page begins with what reaches into the stretch from before it. Rows of
-- one series do not overlap, so that a few of each are enough; all that began before would be the whole history.
-- BETWEEN, and the key in ORDER BY: see read_schedules.sql; coalesce: as in awaited_of.
SELECT f.* FROM (
    (SELECT found.* FROM schedules s
     CROSS JOIN LATERAL generate_series(1, s.series) AS n
     CROSS JOIN LATERAL (
         SELECT * FROM fire_rows f
         WHERE f.namespace = $1 AND f.key = s.key AND f.kind = 'window' AND f.series = n
           AND f.fire_time < $3
         ORDER BY f.fire_time DESC LIMIT 8) AS found
     WHERE $5::timestamptz IS NULL AND s.namespace = $1 AND s.key IN (SELECT k.key FROM keys_of($1, $2) AS k)
       AND found.last_fire_time >= $3)
    UNION ALL
    (SELECT each.* FROM keys_of($1, $2) AS k CROSS JOIN LATERAL (
         SELECT * FROM fire_rows
         WHERE namespace = $1 AND key BETWEEN k.key AND k.key AND coalesce(kind, '') = 'window'
           AND fire_time >= greatest($3, coalesce($5::timestamptz, $3)) AND fire_time <= $4
           AND ($5::timestamptz IS NULL OR (fire_time, series) > ($5::timestamptz, $6::int))
         ORDER BY key DESC, fire_time, series LIMIT $7) AS each)) AS f
ORDER BY f.fire_time, f.series LIMIT $7
