SELECT project, task_queue, types FROM replicas
WHERE namespace = $1 AND seen_at > (SELECT clock_timestamp()) - greatest($2::interval, heartbeat * 3)
