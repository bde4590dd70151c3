-- In key order, so that two editors never wait for each other.
SELECT key FROM schedules WHERE namespace = $1 AND key = ANY ($2::text[]) ORDER BY key FOR UPDATE
