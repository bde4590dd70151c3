-- Whoever writes to one of them at present keeps it; it is looked at again the next day.
SELECT id, xmin::text AS version FROM fires
WHERE namespace = $1 AND id = ANY ($2::bigint[])
ORDER BY id FOR UPDATE SKIP LOCKED
