SELECT r.replica, r.project, r.task_queue, r.types, r.engine, r.tzdata, r.started_at, r.seen_at, r.heartbeat,
       NOT EXISTS (SELECT FROM bindings b
                   WHERE b.namespace = $1 AND b.current AND b.number <> r.binding) AS is_current
FROM replicas r WHERE r.namespace = $1
ORDER BY r.project, r.task_queue, r.started_at, r.replica
