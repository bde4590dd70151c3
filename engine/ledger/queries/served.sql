SELECT DISTINCT project, task_queue FROM replicas
WHERE namespace = $1 AND seen_at > (SELECT clock_timestamp()) - $2::interval
