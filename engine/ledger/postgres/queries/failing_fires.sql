-- The newest open runs with a step that keeps failing, of a key ($2) where one is given. All of them are
-- read: under a generic plan, a condition on the key would read every row of it. Status and loss are tested
-- once more for the planner; see the index fires_failing.
SELECT * FROM (
    SELECT * FROM fire_rows
    WHERE namespace = $1 AND status = 'started' AND lost_at IS NULL AND failing IS NOT NULL
    OFFSET 0) AS found
WHERE $2::text IS NULL OR key IN (SELECT k.key FROM keys_of($1, $2) AS k)
ORDER BY fire_time DESC, key LIMIT $3
