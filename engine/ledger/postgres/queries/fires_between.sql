-- Of every series: a moment is one window of the key. Of the rows that began before the first
-- moment, a few of each series are enough, as in covering_fire.sql.
SELECT * FROM fire_history
WHERE namespace = $1 AND key IN (SELECT k.key FROM keys_of($1, $2) AS k) AND kind = 'window' AND fire_time >= $3 AND fire_time <= $4
UNION ALL
SELECT found.* FROM schedules s
CROSS JOIN LATERAL generate_series(1, s.series) AS n
CROSS JOIN LATERAL (
    SELECT * FROM fire_history f
    WHERE f.namespace = $1 AND f.key = s.key AND f.kind = 'window' AND f.series = n
      AND f.fire_time < $3
    ORDER BY f.fire_time DESC LIMIT 8) AS found
WHERE s.namespace = $1 AND s.key IN (SELECT k.key FROM keys_of($1, $2) AS k) AND found.last_fire_time >= $3 AND found.fire_time <= $4
ORDER BY fire_time
