-- A move is a DELETE of one exact row and an INSERT under the next step: see the table. Without a
-- change nothing moves. A plan that waits for an answer is made again at its look_at; its next fire
-- time stays that of the undecided window, which children wait for. The row of schedules follows only
-- if the caller asks for it (`through`); otherwise it stays behind.
WITH was AS (
    SELECT m.*, p.step, p.project, p.lane, p.share, p.cursor AS stood_at
    FROM unnest(:state.key::text[], :cursor::timestamptz[], :next_fire_at::timestamptz[], :max_bucket::bigint[],
                :reading::timestamp[], :resumed::bool[], :through::bool[], :look_at::timestamptz[])
         AS m (key, cursor, next_fire_at, max_bucket, reading, resumed, through, look_at)
    CROSS JOIN LATERAL position_of($1, m.key) AS p
    WHERE m.through OR (p.cursor, p.next_fire_at, p.max_bucket, p.rules, p.cursor_reading)
                       IS DISTINCT FROM (m.cursor, m.next_fire_at, m.max_bucket, $2, m.reading)
          OR greatest(p.due_at, statement_timestamp())
             <> greatest(m.next_fire_at, m.look_at, statement_timestamp())
), gone AS (
    DELETE FROM positions p USING was
    WHERE p.namespace = $1 AND p.key = was.key AND p.step = was.step
    RETURNING was.*
), moved AS (
    INSERT INTO positions (namespace, key, step, project, lane, share, due_at, next_fire_at, cursor,
                           max_bucket, rules, cursor_reading)
    SELECT $1, g.key, g.step + 1, g.project, g.lane, g.share,
           CASE WHEN g.next_fire_at IS NOT NULL THEN greatest(g.next_fire_at, g.look_at, statement_timestamp()) END,
           g.next_fire_at,
           CASE WHEN g.cursor >= g.stood_at THEN g.cursor
                ELSE refuse_position(g.key, g.stood_at, g.cursor) END,
           g.max_bucket, $2, g.reading
    FROM gone g)
UPDATE schedules s
SET position_step = m.step + 1, cursor = m.cursor, next_fire_at = m.next_fire_at,
    max_bucket = m.max_bucket, rules = $2, cursor_reading = m.reading, failures = 0, error = NULL,
    paused_at = CASE WHEN m.resumed THEN NULL ELSE s.paused_at END,
    paused_by = CASE WHEN m.resumed THEN NULL ELSE s.paused_by END,
    paused_reason = CASE WHEN m.resumed THEN NULL ELSE s.paused_reason END,
    paused_until = CASE WHEN m.resumed THEN NULL ELSE s.paused_until END
FROM gone m
WHERE m.through AND s.namespace = $1 AND s.key = m.key
