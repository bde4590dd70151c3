-- The rules and the input of a type are those announced last. `news` are only types that were unknown.
INSERT INTO workflow_types AS known (namespace, task_queue, type, rules, input, announced_at)
SELECT $1, $2, t.type, t.rules, t.input, clock_timestamp()
FROM unnest($3::text[], $4::jsonb[], $5::jsonb[]) AS t (type, rules, input)
ON CONFLICT (namespace, task_queue, type) DO UPDATE SET rules = excluded.rules, input = excluded.input
WHERE (known.rules, known.input) IS DISTINCT FROM (excluded.rules, excluded.input)
RETURNING type, xmax = 0 AS news
