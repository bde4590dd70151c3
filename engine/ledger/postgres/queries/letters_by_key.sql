-- Of the newest dead letters alone: their number has no bound.
SELECT key, min(project) AS project, count(*) AS number, max(died_at) AS died_at,
       (array_agg(workflow_id ORDER BY fire_time DESC))[1] AS newest,
       (array_agg(coalesce(error, reason) ORDER BY fire_time DESC))[1] AS error
FROM (
    SELECT * FROM dead_letters WHERE namespace = $1 ORDER BY fire_time DESC, workflow_id LIMIT $2) AS newest
GROUP BY key ORDER BY key
