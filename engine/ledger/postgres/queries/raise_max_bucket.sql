-- Buckets of windows that were never owed are used too: a later series must not reuse them.
UPDATE schedules SET max_bucket = greatest(max_bucket, $3) WHERE namespace = $1 AND key = $2
