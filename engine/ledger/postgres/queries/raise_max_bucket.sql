-- The numbers of windows that nobody owed are used, too: a later series must not give them away.
UPDATE schedules SET max_bucket = greatest(max_bucket, $3) WHERE namespace = $1 AND key = $2
