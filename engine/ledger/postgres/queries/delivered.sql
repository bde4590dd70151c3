DELETE FROM deliveries d USING unnest($3::bigint[], $4::text[]) AS n (position, name)
WHERE d.namespace = $1 AND d.subscription = $2 AND d.position = n.position AND d.name = n.name
