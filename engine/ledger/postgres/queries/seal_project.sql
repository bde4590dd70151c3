-- The first key stays.
INSERT INTO seals (namespace, project, digest_key, sealed_by) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, project) DO NOTHING
