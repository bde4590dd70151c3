-- Write the new answers; remove queues that no external schedule has any more (not in $5).
WITH gone AS (
    DELETE FROM polled_queues WHERE namespace = $1 AND task_queue <> ALL ($5::text[]))
INSERT INTO polled_queues AS known (namespace, task_queue, polled_at, waiting)
SELECT $1, q.task_queue, q.polled_at, q.waiting
FROM unnest($2::text[], $3::timestamptz[], $4::bigint[]) AS q (task_queue, polled_at, waiting)
ON CONFLICT (namespace, task_queue) DO UPDATE
SET polled_at = greatest(known.polled_at, excluded.polled_at), waiting = excluded.waiting,
    looked_at = excluded.looked_at
RETURNING task_queue, polled_at, waiting, since, looked_at
