-- The first row of each group comes to stand for all of it, and names no run any more.
WITH gone AS (
    DELETE FROM fires WHERE namespace = $1 AND id = ANY ($5::bigint[]))
UPDATE fires f
SET windows = g.windows, last_fire_time = g.last, merged_at = clock_timestamp(),
    run_id = NULL, started_at = NULL, closed_at = NULL, starting_at = NULL, seen_at = NULL,
    open_at = NULL, error = NULL, replica = NULL, attempts = 0, history = '[]', input = NULL,
    stop = NULL, stop_at = NULL, stop_grace = NULL, stop_reason = NULL
FROM unnest($2::bigint[], $3::int[], $4::timestamptz[]) AS g (id, windows, last)
WHERE f.namespace = $1 AND f.id = g.id
