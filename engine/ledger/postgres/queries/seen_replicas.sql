SELECT replica, project, task_queue, types, engine, tzdata, started_at, seen_at, heartbeat
FROM replicas WHERE namespace = $1
ORDER BY project, task_queue, started_at, replica
