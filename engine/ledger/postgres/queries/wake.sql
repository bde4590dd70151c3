-- Keys whose queue waits for nothing: neither for a place among the runs of its own key, nor for
-- windows of other schedules. If a queue keeps its order, fires wait behind those that wait for
-- others.
-- The cost depends on the number of keys with a line, not on its length: each key is checked once
-- and counted no further than its limit. Of the fires that wait for other schedules, $3 are checked
-- from the head of each line and as many from a place in it ($4, from 0 to 1); beyond $5 of all
-- keys, fewer of each, so that a long line starves no other. The line of a former key is that of
-- its schedule, and the fires of all its keys are counted. BETWEEN: see read_schedules.sql.
-- A locked key is returned as locked, due or not: its plan may not have read the latest change and
-- will put it off; other keys do not wait for it. Free keys are made due by make_due.sql: a plan may
-- have moved one since this statement began, which only another statement sees.
WITH long AS MATERIALIZED (
    SELECT c.key, sum(c.waiting) AS waiting, sum(c.pending) AS pending
    FROM line_changes c WHERE c.namespace = $1
    GROUP BY c.key HAVING sum(c.waiting) > 0 OR sum(c.pending) > 0),
share AS MATERIALIZED (
    SELECT greatest(least($3, $5 / (2 * greatest(count(*), 1))), 1) AS most
    FROM long WHERE long.pending > 0),
asked AS MATERIALIZED (
    SELECT chained.key, part.fire_id
    FROM (SELECT l.key, l.pending FROM long l WHERE l.pending > 0
          ORDER BY hashtextextended(l.key, ($4::float8 * 1000000)::bigint)) AS chained
    CROSS JOIN LATERAL (
        (SELECT l.fire_id FROM line l
         WHERE l.namespace = $1 AND l.key = chained.key AND l.pending
         ORDER BY l.fire_id LIMIT (SELECT most FROM share))
        UNION
        (SELECT l.fire_id FROM line l
         WHERE chained.pending > (SELECT most FROM share)
           AND l.namespace = $1 AND l.key = chained.key AND l.pending AND l.fire_id > (
               SELECT min(e.fire_id) + ((max(e.fire_id) - min(e.fire_id)) * $4::float8)::bigint
               FROM line e WHERE e.namespace = $1 AND e.key = chained.key AND e.pending)
         ORDER BY l.fire_id LIMIT (SELECT most FROM share))) AS part
    LIMIT $5),
ready AS MATERIALIZED (
    SELECT o.key
    FROM long
    JOIN schedules own ON own.namespace = $1 AND own.key = long.key
    JOIN schedules o ON o.namespace = $1 AND o.key = coalesce(own.successor, own.key)
    JOIN definitions d ON d.namespace = o.namespace AND d.key = o.key
                      AND d.version = o.definition_version
    CROSS JOIN LATERAL (
        SELECT coalesce((d.definition ->> 'maxConcurrentRuns')::int, 1) AS places) AS most
    WHERE long.waiting > 0
      AND (
          SELECT count(*) FROM unnest(o.key || o.former) AS k (key) CROSS JOIN LATERAL (
              SELECT FROM fires f
              WHERE f.namespace = $1 AND f.key BETWEEN k.key AND k.key AND f.lost_at IS NULL
                AND f.status IN ('claimed', 'starting', 'started') AND f.kind <> 'handler'
              ORDER BY f.key, f.id LIMIT most.places) AS open) < most.places
      AND NOT EXISTS (
          SELECT 1 FROM line h
          WHERE h.namespace = $1 AND h.key = long.key AND h.pending
            AND d.definition ->> 'overlap' IN ('queue', 'queue_one')
            AND h.fire_id < (SELECT min(q.fire_id) FROM line q
                             WHERE q.namespace = $1 AND q.key = long.key AND NOT q.pending))
    UNION
    SELECT coalesce(min(own.successor), a.key)
    FROM schedules own JOIN (
        SELECT asked.key, asked.fire_id, w.became <> 'pending' AS final,
               CASE w.wants
                   WHEN 'success' THEN w.became = 'completed'
                   WHEN 'failure' THEN w.became = ANY ($2::text[])
                   ELSE w.became = 'completed' OR w.became = ANY ($2::text[])
               END AS met
        FROM asked CROSS JOIN LATERAL awaited_of(asked.fire_id) AS w) AS a
        ON own.namespace = $1 AND own.key = a.key
    GROUP BY a.key, a.fire_id
    HAVING bool_and(a.final) OR bool_or(a.final AND NOT a.met)),
able AS MATERIALIZED (
    SELECT s.key FROM schedules s JOIN ready USING (key)
    WHERE s.namespace = $1 AND s.paused_at IS NULL AND s.retired_at IS NULL AND s.enabled),
free AS MATERIALIZED (
    SELECT s.key FROM schedules s JOIN able USING (key)
    WHERE s.namespace = $1 ORDER BY s.key FOR UPDATE OF s SKIP LOCKED)
SELECT able.key, free.key IS NULL AS locked
FROM able LEFT JOIN free USING (key)
ORDER BY able.key
