-- Runs that queued windows of their key wait for, the oldest line first. One replica watches each
-- run: the one that started it, or, if that is gone, the one that watches closed runs ($4). Each
-- key is found by one index descent, however many windows wait; DISTINCT would read them all. Only
-- the oldest open fires of a key are read: what runs is usually older than what waits.
WITH RECURSIVE lines AS (
    (SELECT q.key FROM fires q WHERE q.namespace = $1 AND q.status = 'queued' ORDER BY q.key LIMIT 1)
    UNION ALL
    SELECT (SELECT q.key FROM fires q
            WHERE q.namespace = $1 AND q.status = 'queued' AND q.key > lines.key
            ORDER BY q.key LIMIT 1)
    FROM lines WHERE lines.key IS NOT NULL
)
SELECT f.workflow_id, f.key
FROM lines
CROSS JOIN LATERAL (
    SELECT o.id, o.workflow_id, o.key, o.status, o.kind, o.replica,
           min(o.id) FILTER (WHERE o.status = 'queued') OVER () AS line
    FROM (SELECT each.* FROM keys_of($1, lines.key) AS k
          CROSS JOIN LATERAL (
              SELECT * FROM fires i
              WHERE i.namespace = $1 AND i.key = k.key AND i.lost_at IS NULL
                AND (i.binding = $6 OR i.status = 'queued')
                AND i.status IN ('claimed', 'queued', 'starting', 'started')
              ORDER BY i.id LIMIT 200) AS each
          ORDER BY each.id LIMIT 200) AS o) AS f
WHERE f.status = 'started' AND f.kind <> 'handler'
  AND (f.replica = $2 OR ($4 AND NOT EXISTS (
          SELECT FROM replicas r
          WHERE r.namespace = $1 AND r.replica = f.replica AND r.seen_at > clock_timestamp() - greatest($3::interval, r.heartbeat * 3))))
ORDER BY f.line, f.id LIMIT $5
