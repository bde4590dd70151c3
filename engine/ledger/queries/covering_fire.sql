-- The row of one window, be it one of many in a range; of several series the newest.
SELECT * FROM fire_history
WHERE namespace = $1 AND key = $2 AND kind = 'window' AND fire_time <= $3 AND last_fire_time >= $3
ORDER BY series DESC, fire_time DESC LIMIT 1
