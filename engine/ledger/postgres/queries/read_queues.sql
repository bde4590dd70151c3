SELECT queue, project, concurrency, rate, declared_at, dropped_at
FROM queues WHERE namespace = $1 ORDER BY queue
