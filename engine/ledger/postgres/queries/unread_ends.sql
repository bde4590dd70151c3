-- Of each key the newest end whose reason is to be read, from behind one key ($3) on: a key with many
-- delays another by one. Each key is one index descent. $4 is the binding whose runs can be asked about here.
WITH RECURSIVE keys AS (
    (SELECT f.key, 1 AS nth FROM fires f
     WHERE f.namespace = $1 AND f.binding = $4 AND f.counted = 'unread' AND f.key > $3 ORDER BY f.key LIMIT 1)
    UNION ALL
    SELECT following.key, k.nth + 1
    FROM keys k CROSS JOIN LATERAL (
        SELECT f.key FROM fires f
        WHERE f.namespace = $1 AND f.binding = $4 AND f.counted = 'unread' AND f.key > k.key ORDER BY f.key LIMIT 1) AS following
    WHERE k.nth < $2)
SELECT newest.*
FROM keys CROSS JOIN LATERAL (
    SELECT f.key, f.workflow_id, f.run_id, f.workflow_type, f.status AS closed, f.started_at, f.closed_at
    FROM fires f
    WHERE f.namespace = $1 AND f.binding = $4 AND f.counted = 'unread' AND f.key = keys.key
    ORDER BY f.id DESC LIMIT 1) AS newest
ORDER BY newest.key
