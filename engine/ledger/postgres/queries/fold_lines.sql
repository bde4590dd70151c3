-- Runs under the schedule's lock; rows added meanwhile are not seen, and stay.
WITH gone AS (
    DELETE FROM line_changes WHERE namespace = $1 AND key = ANY ($2::text[])
    RETURNING key, waiting, pending)
INSERT INTO line_changes (namespace, key, waiting, pending)
SELECT $1, key, sum(waiting), sum(pending) FROM gone GROUP BY key
HAVING sum(waiting) <> 0 OR sum(pending) <> 0
