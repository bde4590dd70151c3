INSERT INTO backfills (namespace, project, key, series, definition_version, first, last, cursor, overlap,
                       include, reason, requested_by, requested_at, next_at, windows)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13, $14)
RETURNING id
