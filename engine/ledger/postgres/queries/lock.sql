-- In key order, so that two editors do not deadlock.
SELECT key FROM schedules WHERE namespace = $1 AND key = ANY ($2::text[]) ORDER BY key FOR UPDATE
