SELECT project, task_queue, types FROM replicas
WHERE namespace = $1 AND seen_at > (SELECT clock_timestamp()) - $2::interval
