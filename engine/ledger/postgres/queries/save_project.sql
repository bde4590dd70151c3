-- A file that is in force again, because somebody has forced it or edits it, is not superseded any more.
WITH superseded AS (
    INSERT INTO superseded_files (namespace, project, file_digest)
    SELECT namespace, project, file_digest FROM projects
    WHERE namespace = $1 AND project = :project AND file_digest NOT IN ('', :digest) AND :digest <> ''
    ON CONFLICT (namespace, project, file_digest) DO UPDATE SET superseded_at = excluded.superseded_at),
left_out AS (
    DELETE FROM superseded_files
    WHERE namespace = $1 AND project = :project AND (file_digest = :digest OR file_digest IN (
        SELECT file_digest FROM superseded_files WHERE namespace = $1 AND project = :project
        ORDER BY superseded_at DESC OFFSET :remembered))),
saved AS (
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
