SELECT queue, project, concurrency, per_key, rate, declared_at, dropped_at
FROM queues WHERE namespace = $1 ORDER BY queue
