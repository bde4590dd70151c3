-- The schedules whose present definition waits for this one.
SELECT c.key FROM schedules c
WHERE c.namespace = $1 AND c.parents @> ARRAY[$2::text] AND c.parents <> '{}' AND c.retired_at IS NULL
ORDER BY c.key
