-- Update rows of schedules that have been behind their positions for some time. A locked one is
-- being moved, and follows by itself.
WITH behind AS (
    SELECT p.key, p.step, p.cursor, p.next_fire_at, p.max_bucket, p.cursor_reading
    FROM positions p
    JOIN schedules s ON s.namespace = p.namespace AND s.key = p.key
    WHERE p.namespace = $1 AND p.key > $2 AND p.behind_since <= clock_timestamp() - $3::interval
    ORDER BY p.key LIMIT $4
    FOR UPDATE OF s, p SKIP LOCKED
), written AS (
    UPDATE schedules s
    SET position_step = b.step, cursor = b.cursor, next_fire_at = b.next_fire_at,
        max_bucket = b.max_bucket, cursor_reading = b.cursor_reading
    FROM behind b WHERE s.namespace = $1 AND s.key = b.key)
UPDATE positions p SET behind_since = NULL
FROM behind b WHERE p.namespace = $1 AND p.key = b.key AND p.step = b.step
RETURNING p.key
