SELECT d.key, d.version, d.definition::text AS definition
FROM unnest($2::text[], $3::int[]) AS w (key, version)
JOIN definitions d ON d.namespace = $1 AND d.key = w.key AND d.version = w.version
