-- Whatever series: a moment is one window of the key.
SELECT * FROM fire_history
WHERE namespace = $1 AND key = $2 AND kind = 'window' AND last_fire_time >= $3 AND fire_time <= $4
ORDER BY fire_time
