-- What a plan waited for is known. With $3 the caller has locked the keys, in an earlier statement (lock.sql): a
-- plan that held a lock has not seen the answer, and what it wrote is put right here, even if the key is due already.
-- Without it these are keys that `wake` found free and ready: one that is due is left out, and so is one that is
-- locked now, or has moved since this statement began, because its plan sees all that `wake` saw. A next fire time in
-- the past stays: it is that of a window which is undecided, and children wait for it.
WITH was AS (
    SELECT s.key, p.step FROM schedules s
    CROSS JOIN LATERAL position_of($1, s.key) AS p
    WHERE s.namespace = $1 AND s.key = ANY ($2::text[]) AND s.retired_at IS NULL
      AND s.enabled AND (s.paused_at IS NULL OR s.paused_until <= (SELECT clock_timestamp()))
      AND ($3 OR p.due_at IS NULL OR p.due_at > clock_timestamp())
    ORDER BY s.key FOR UPDATE OF s SKIP LOCKED
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
