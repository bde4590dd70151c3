-- Days with runs that were open when they were counted.
SELECT key, day FROM days
WHERE namespace = $1 AND open > 0 AND NOT final AND (key, day) > ($2, $3::date)
ORDER BY key, day LIMIT $4
