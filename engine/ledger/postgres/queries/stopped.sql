-- The run was asked to end. It is checked again soon, then less and less often: a run that
-- continues as new, or is retried, goes on without having received the cancel. When its grace has
-- passed, it is due to be terminated.
UPDATE fires f
SET first_run_id = coalesce(f.first_run_id, a.first_run_id),
    stop_asked_at = coalesce(f.stop_asked_at, clock_timestamp()),
    stop_at = least(clock_timestamp() + least(greatest(clock_timestamp() - f.stop_asked_at, interval '1 second'),
                                              interval '30 seconds'),
                    CASE WHEN f.stop = 'cancel'
                         THEN coalesce(f.stop_asked_at, clock_timestamp()) + f.stop_grace END)
FROM unnest(:fire_id::bigint[], :stop::text[], :first_run_id::text[]) AS a (id, asked, first_run_id)
WHERE f.namespace = $1 AND f.id = a.id AND f.stop = a.asked
