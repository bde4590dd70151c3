-- Rows of one window each, by what became of them. Ranges are few, and counted by their definitions.
SELECT status, count(*) AS windows FROM fires
WHERE namespace = $1 AND key = $2 AND kind = 'window' AND windows = 1
  AND fire_time > $3 AND fire_time <= $4
GROUP BY status
