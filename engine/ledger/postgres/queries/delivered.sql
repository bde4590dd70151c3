DELETE FROM deliveries d USING unnest(:position::bigint[], :name::text[]) AS n (position, name)
WHERE d.namespace = $1 AND d.subscription = $2 AND d.position = n.position AND d.name = n.name
