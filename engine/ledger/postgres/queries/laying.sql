-- Every range that is still to be laid, of any key.
SELECT id, project, key, series, definition_version, first, last, cursor, overlap, include, state,
       ended_reason, reason, requested_by, requested_at, next_at, laid_at, looked_at, ended_at,
       windows, laid, left_alone, error
FROM backfills WHERE namespace = $1 AND state = 'laying' ORDER BY key, first
