-- Keys that `wake` found free and ready, unless they are due. A key that is locked now is being
-- planned by a replica that sees all that `wake` saw; so is one that has moved since this statement
-- began. The next fire time is written as in make_due.sql.
WITH was AS (
    SELECT o.key, p.step FROM schedules o CROSS JOIN LATERAL position_of($1, o.key) AS p
    WHERE o.namespace = $1 AND o.key = ANY ($2::text[])
      AND (p.due_at IS NULL OR p.due_at > clock_timestamp())
    ORDER BY o.key FOR UPDATE OF o SKIP LOCKED
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
