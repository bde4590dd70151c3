INSERT INTO deliveries (namespace, subscription, position, name, key, attempts, due_at, error, dead_at)
SELECT $1, $2, n.position, n.name, n.key, n.attempts, clock_timestamp() + n.wait, n.error,
       CASE WHEN n.wait IS NULL THEN clock_timestamp() END
FROM unnest($3::bigint[], $4::text[], $5::text[], $6::int[], $7::interval[], $8::text[])
     AS n (position, name, key, attempts, wait, error)
ON CONFLICT (namespace, subscription, position, name) DO NOTHING
