INSERT INTO backfills (namespace, project, key, series, definition_version, first, last, cursor, overlap,
                       include, reason, requested_by, requested_at, next_at, windows)
VALUES ($1, :project, :key, :series, :definition_version, :first, :last, :cursor, :overlap, :include, :reason,
        :requested_by, :requested_at, :requested_at, :windows)
RETURNING id
