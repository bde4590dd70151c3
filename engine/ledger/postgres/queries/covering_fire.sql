-- The row of one window, possibly a range; of several series the newest. Rows of one series do not
-- overlap, so a few are enough; all that began before would be the whole history.
SELECT found.* FROM schedules s
CROSS JOIN LATERAL generate_series(1, s.series) AS n
CROSS JOIN LATERAL (
    SELECT * FROM fire_history f
    WHERE f.namespace = $1 AND f.key = s.key AND f.kind = 'window' AND f.series = n
      AND f.fire_time <= $3
    ORDER BY f.fire_time DESC LIMIT 8) AS found
WHERE s.namespace = $1 AND s.key IN (SELECT k.key FROM keys_of($1, $2) AS k) AND found.last_fire_time >= $3
ORDER BY found.series DESC, found.fire_time DESC LIMIT 1
