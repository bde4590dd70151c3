SELECT * FROM fire_history
WHERE namespace = $1 AND key = $2 AND kind = 'window' AND windows > 1
  AND fire_time <= $4 AND last_fire_time > $3
