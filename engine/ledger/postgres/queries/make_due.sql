-- What a plan waited for is known. The caller has locked the keys, in an earlier statement (lock.sql):
-- a plan that held a lock has not seen the answer, and what it wrote is put right here. Keys that are
-- due already are written too. A next fire time in the past stays: it is that of a window which is
-- undecided, and children wait for it.
WITH was AS (
    SELECT p.key, p.step FROM schedules s
    CROSS JOIN LATERAL position_of($1, s.key) AS p
    WHERE s.namespace = $1 AND s.key = ANY ($2::text[]) AND s.retired_at IS NULL
      AND s.enabled AND (s.paused_at IS NULL OR s.paused_until <= (SELECT clock_timestamp()))
), gone AS (
    DELETE FROM positions p USING was
    WHERE p.namespace = $1 AND p.key = was.key AND p.step = was.step
    RETURNING p.*)
INSERT INTO positions (namespace, key, step, project, lane, share, due_at, next_fire_at, cursor,
                       max_bucket, rules, cursor_reading)
SELECT $1, g.key, g.step + 1, g.project, g.lane, g.share, now.at, least(g.next_fire_at, now.at), g.cursor,
       g.max_bucket, g.rules, g.cursor_reading
FROM gone g CROSS JOIN (SELECT clock_timestamp() AS at) AS now
RETURNING key
