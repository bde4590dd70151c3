UPDATE deliveries d
SET attempts = n.attempts, error = n.error, due_at = clock_timestamp() + n.wait,
    first_at = CASE WHEN d.attempts = 0 THEN clock_timestamp() ELSE d.first_at END,
    dead_at = CASE WHEN n.wait IS NULL THEN clock_timestamp() END
FROM unnest(:position::bigint[], :name::text[], :attempts::int[], :wait::interval[], :error::text[])
     AS n (position, name, attempts, wait, error)
WHERE d.namespace = $1 AND d.subscription = $2 AND d.position = n.position AND d.name = n.name
