-- The fires of any kind that wait in the line of a key, counted no further than asked.
SELECT count(*) AS waiting
FROM (SELECT 1 FROM fires
      WHERE namespace = $1 AND key IN (SELECT k.key FROM keys_of($1, $2) AS k) AND status = 'queued' AND awaits IS NULL LIMIT $3) AS line
