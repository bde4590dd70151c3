SELECT task_queue, polled_at, waiting, since, looked_at FROM polled_queues
WHERE namespace = $1 AND looked_at > (SELECT clock_timestamp()) - $2::interval ORDER BY task_queue
