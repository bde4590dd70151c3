-- The first row of each group stands for all of it, and names no run. It records since when all of
-- it rests: by its last fire time alone it would leave before its longest run may.
WITH gone AS (
    DELETE FROM fires WHERE namespace = $1 AND id = ANY ($2::bigint[]))
UPDATE fires f
SET windows = g.windows, last_fire_time = g.last, decided_at = g.rested, merged_at = clock_timestamp(),
    run_id = NULL, first_run_id = NULL, started_at = NULL, closed_at = NULL, starting_at = NULL, seen_at = NULL,
    open_at = NULL, error = NULL, replica = NULL, attempts = 0, history = '[]', input = NULL, sealed_input = NULL,
    stop = NULL, stop_at = NULL, stop_grace = NULL, stop_reason = NULL, stop_asked_at = NULL, data_from = NULL, failing = NULL,
    duration_ms = NULL, tries = NULL, step_retries = NULL, counted = NULL, given_up = NULL, failure = NULL, tried = NULL
FROM unnest($3::bigint[], $4::int[], $5::timestamptz[], $6::timestamptz[])
    AS g (id, windows, last, rested)
WHERE f.namespace = $1 AND f.id = g.id
