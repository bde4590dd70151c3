-- In key order and waiting, as every editor locks.
SELECT key FROM schedules
WHERE namespace = $1 AND project = $2 AND retired_at IS NULL AND rules < $3 AND key > $4
  AND lane = ANY ($5::text[])
ORDER BY key LIMIT $6 FOR UPDATE
