-- How many wait in the line of a key, of whatever kind; no further than is asked.
SELECT count(*) AS waiting
FROM (SELECT 1 FROM fires
      WHERE namespace = $1 AND key = $2 AND status = 'queued' AND awaits IS NULL LIMIT $3) AS line
