-- The key's runs were looked up, for whichever backfill: what was lost up to then is known.
UPDATE backfills
SET looked_at = greatest(looked_at, $3::timestamptz), next_at = clock_timestamp()
WHERE namespace = $1 AND key = $2 AND state = 'laying'
