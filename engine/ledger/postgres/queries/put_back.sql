INSERT INTO deliveries (namespace, subscription, position, name, key, attempts, due_at, error, dead_at)
SELECT $1, $2, n.position, n.name, n.key, n.attempts, clock_timestamp() + n.wait, n.error,
       CASE WHEN n.wait IS NULL THEN clock_timestamp() END
FROM unnest(:position::bigint[], :name::text[], :key::text[], :attempts::int[], :wait::interval[], :error::text[])
     AS n (position, name, key, attempts, wait, error)
ON CONFLICT (namespace, subscription, position, name) DO NOTHING
