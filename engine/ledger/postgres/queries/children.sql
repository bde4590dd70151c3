-- Who waits for this schedule by its present definition.
SELECT c.key FROM schedules c
WHERE c.namespace = $1 AND c.parents @> ARRAY[$2::text] AND c.parents <> '{}' AND c.retired_at IS NULL
ORDER BY c.key
