SELECT * FROM fire_rows
WHERE namespace = $1 AND key IN (SELECT k.key FROM keys_of($1, $2) AS k) AND kind = 'window' AND windows > 1
  AND fire_time <= $4 AND last_fire_time > $3
