-- The rules of a type are those announced last. `news` are only types that were unknown.
INSERT INTO workflow_types AS known (namespace, task_queue, type, rules, announced_at)
SELECT $1, $2, t.type, t.rules, clock_timestamp() FROM unnest($3::text[], $4::jsonb[]) AS t (type, rules)
ON CONFLICT (namespace, task_queue, type) DO UPDATE SET rules = excluded.rules
WHERE known.rules IS DISTINCT FROM excluded.rules
RETURNING type, xmax = 0 AS news
