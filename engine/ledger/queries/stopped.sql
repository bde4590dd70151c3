-- The run was asked. One that was cancelled is terminated when its grace has passed; without one
-- it has all the time it wants, and is looked at again.
UPDATE fires f
SET stop = CASE WHEN f.stop = 'cancel' AND f.stop_grace IS NOT NULL THEN 'terminate' ELSE f.stop END,
    stop_at = clock_timestamp() + CASE WHEN f.stop = 'cancel' THEN coalesce(f.stop_grace, interval '1 hour')
                                       ELSE interval '10 seconds' END
FROM unnest($2::bigint[], $3::text[]) AS a (id, asked)
WHERE f.namespace = $1 AND f.id = a.id AND f.stop = a.asked
