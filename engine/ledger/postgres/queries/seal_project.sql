-- The first key stays. From here on code from before $5 may not work with the ledger: it cannot read
-- sealed inputs, and must not repeat a run without its own.
WITH raised AS (
    UPDATE migrations SET beside = version
    WHERE version = $5 AND beside IS DISTINCT FROM version)
INSERT INTO seals (namespace, project, digest_key, sealed_by) VALUES ($1, $2, $3, $4)
ON CONFLICT (namespace, project) DO NOTHING
