-- The slots in use of every step queue, by the task queue of its workers. There are never more of them than the
-- concurrencies together.
SELECT queue, split_part(lane, '/', 1) AS task_queue, count(*)::int AS running
FROM queue_slots
WHERE namespace = $1 AND lease_until > (SELECT clock_timestamp()) AND lane NOT LIKE '%#%'
GROUP BY queue, split_part(lane, '/', 1) ORDER BY queue, task_queue
