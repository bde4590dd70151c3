INSERT INTO workflow_types (namespace, task_queue, type, announced_at)
SELECT $1, $2, t, clock_timestamp() FROM unnest($3::text[]) AS t
ON CONFLICT DO NOTHING
RETURNING type
