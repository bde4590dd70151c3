-- What the cache says; one that backs off has put itself off.
SELECT key, next_fire_at FROM schedules
WHERE namespace = $1 AND project = $2 AND key > $3 AND failures = 0 AND rules = $4
ORDER BY key LIMIT $5
