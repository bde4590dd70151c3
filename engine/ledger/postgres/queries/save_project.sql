WITH saved AS (
    INSERT INTO projects (namespace, project, revision, file_name, file_digest, applied_at, applied_by,
                          refused, forgotten_at)
    VALUES ($1, :project, :revision, :name, :digest, clock_timestamp(), :by, :refused,
            CASE WHEN :forgotten THEN clock_timestamp() END)
    ON CONFLICT (namespace, project) DO UPDATE
    SET revision = excluded.revision, file_name = excluded.file_name,
        file_digest = excluded.file_digest, applied_at = excluded.applied_at,
        applied_by = excluded.applied_by, refused = excluded.refused,
        forgotten_at = excluded.forgotten_at)
UPDATE ledger SET epoch = epoch + 1
