-- The newest $3 rows of a key keep their details: older rows lie before the last of them.
SELECT fire_time FROM fires WHERE namespace = $1 AND key = $2
ORDER BY fire_time DESC OFFSET $3 - 1 LIMIT 1
