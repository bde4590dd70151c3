-- Locked in key order, as every editor locks: an UPDATE alone would lock in physical order.
WITH wanted AS (
    SELECT s.key, r.type
    FROM schedules s
    JOIN unnest($3::text[], $4::text[]) AS r (workflow, type) ON r.workflow = s.workflow
    WHERE s.namespace = $1 AND s.task_queue = $2 AND NOT s.external
      AND s.workflow_type IS DISTINCT FROM r.type
    ORDER BY s.key FOR UPDATE OF s
), changed AS (
    UPDATE schedules s SET workflow_type = wanted.type
    FROM wanted
    WHERE s.namespace = $1 AND s.key = wanted.key
    RETURNING 1)
SELECT count(*)::int AS changed FROM changed
