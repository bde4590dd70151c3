INSERT INTO replicas (namespace, replica, project, task_queue, types, engine, tzdata, heartbeat, binding, started_at, seen_at)
VALUES ($1, :replica, :project, :task_queue, :types, :engine, :tzdata, :heartbeat, :binding, clock_timestamp(), clock_timestamp())
ON CONFLICT (namespace, replica) DO UPDATE
SET project = excluded.project, task_queue = excluded.task_queue, types = excluded.types,
    engine = excluded.engine, tzdata = excluded.tzdata, seen_at = excluded.seen_at,
    heartbeat = excluded.heartbeat, binding = excluded.binding
