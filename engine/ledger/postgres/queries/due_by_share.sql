-- For a tick while more is due than one can claim: the keys of each share that are due longest, and those
-- that have just become due. Each share is found by one index descent, and so are its keys. Shares are
-- found in schedules, whose rows seldom change: beside an old snapshot each descent in positions would
-- visit the dead entries of a share. $6 is where to begin, as in lock_due.sql, $8 the share after which
-- to begin, and $9 how many are visited. No row is locked. Without any key there is one row without one.
WITH RECURSIVE shares AS (
    SELECT lanes.lane, first.share, 1 AS visited
    FROM unnest($3::text[]) AS lanes (lane)
    CROSS JOIN LATERAL (
        SELECT s.share FROM schedules s
        WHERE s.namespace = $1 AND s.project = $2 AND s.lane = lanes.lane AND s.share > $8
        ORDER BY s.share LIMIT 1) AS first
    UNION ALL
    SELECT before.lane, following.share, before.visited + 1
    FROM shares before
    CROSS JOIN LATERAL (
        SELECT s.share FROM schedules s
        WHERE s.namespace = $1 AND s.project = $2 AND s.lane = before.lane AND s.share > before.share
        ORDER BY s.share LIMIT 1) AS following
    WHERE before.visited < $9
), found AS (
    SELECT oldest.key, shares.lane, shares.share, oldest.due_at
    FROM shares
    CROSS JOIN LATERAL (
        SELECT p.key, p.due_at FROM positions p
        WHERE p.namespace = $1 AND p.project = $2 AND p.lane = shares.lane AND p.share = shares.share
          AND p.due_at >= $6 AND p.due_at <= (SELECT clock_timestamp()) AND p.rules <= $5
          AND p.key <> ALL ($7::text[])
          AND EXISTS (
              SELECT 1 FROM schedules s WHERE s.namespace = p.namespace AND s.key = p.key
                AND (s.lane = '' OR s.workflow_type = ANY ($4::text[])) OFFSET 0)
        ORDER BY p.due_at LIMIT $10) AS oldest
    UNION
    SELECT newest.key, lanes.lane, newest.share, newest.due_at
    FROM unnest($3::text[]) AS lanes (lane)
    CROSS JOIN LATERAL (
        SELECT p.key, p.share, p.due_at FROM positions p
        WHERE p.namespace = $1 AND p.project = $2 AND p.lane = lanes.lane
          AND p.due_at >= greatest($6, (SELECT clock_timestamp()) - $11::interval)
          AND p.due_at <= (SELECT clock_timestamp()) AND p.rules <= $5
          AND p.key <> ALL ($7::text[])
          AND EXISTS (
              SELECT 1 FROM schedules s WHERE s.namespace = p.namespace AND s.key = p.key
                AND (s.lane = '' OR s.workflow_type = ANY ($4::text[])) OFFSET 0)
        ORDER BY p.due_at DESC LIMIT $10) AS newest
)
SELECT found.*, look.*
FROM (
    SELECT clock_timestamp() AS now,
           (SELECT max(share) FROM shares HAVING max(visited) >= $9) AS further,
           (SELECT min(coming.due_at)
            FROM unnest($3::text[]) AS lanes (lane)
            CROSS JOIN LATERAL (
                SELECT p.due_at FROM positions p
                WHERE p.namespace = $1 AND p.project = $2 AND p.lane = lanes.lane
                  AND p.due_at > (SELECT clock_timestamp())
                ORDER BY p.due_at LIMIT 1) AS coming) AS next_at) AS look
LEFT JOIN found ON true
ORDER BY found.share, found.due_at, found.key
