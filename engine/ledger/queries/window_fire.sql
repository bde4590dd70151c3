SELECT * FROM fire_history
WHERE namespace = $1 AND key = $2 AND kind = 'window' AND bucket = $3
  AND ($4::int IS NULL OR series = $4)
ORDER BY series DESC LIMIT 1
