-- As a worker read it last.
SELECT retention FROM retentions WHERE namespace = $1 ORDER BY seen_until DESC LIMIT 1
