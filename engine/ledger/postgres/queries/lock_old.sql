-- Rows that are being written are skipped; the janitor returns to them the next day.
SELECT id, xmin::text AS version FROM fires
WHERE namespace = $1 AND id = ANY ($2::bigint[])
ORDER BY id FOR UPDATE SKIP LOCKED
