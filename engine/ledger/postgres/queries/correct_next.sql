-- The row of schedules may have the right time already, so the position is moved here, and not by the
-- trigger that follows schedules. The caller has locked the key, in an earlier statement.
WITH was AS (
    SELECT p.key, p.step FROM position_of($1, $2) AS p
), gone AS (
    DELETE FROM positions p USING was
    WHERE p.namespace = $1 AND p.key = was.key AND p.step = was.step
    RETURNING p.*)
INSERT INTO positions (namespace, key, step, project, lane, share, due_at, next_fire_at, cursor,
                       max_bucket, rules, cursor_reading)
SELECT $1, g.key, g.step + 1, g.project, g.lane, g.share,
       greatest($3::timestamptz, (SELECT clock_timestamp())), $3, g.cursor, g.max_bucket, g.rules,
       g.cursor_reading
FROM gone g
