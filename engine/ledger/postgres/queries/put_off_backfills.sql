-- A backfill that cannot be laid now does not block others.
UPDATE backfills SET next_at = clock_timestamp() + $3::interval, error = $4
WHERE namespace = $1 AND key = $2 AND state = 'laying'
