-- The runs behind which windows of their key wait in line, the oldest line first. Each is one replica's
-- to wait for: of whichever started it, and where that has gone, of whoever watches closed runs ($4).
-- A key is found by one descent of the index, however many windows wait: DISTINCT would read them all.
-- Of a key's open fires only the oldest are looked at: what runs is as a rule older than what waits.
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
    FROM (SELECT * FROM fires i
          WHERE i.namespace = $1 AND i.key = lines.key AND i.lost_at IS NULL
            AND i.status IN ('claimed', 'queued', 'starting', 'started')
          ORDER BY i.id LIMIT 200) AS o) AS f
WHERE f.status = 'started' AND f.kind <> 'handler'
  AND (f.replica = $2 OR ($4 AND NOT EXISTS (
          SELECT FROM replicas r
          WHERE r.namespace = $1 AND r.replica = f.replica AND r.seen_at > clock_timestamp() - $3::interval)))
ORDER BY f.line, f.id LIMIT $5
