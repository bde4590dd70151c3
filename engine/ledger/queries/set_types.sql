WITH changed AS (
    UPDATE schedules s SET workflow_type = r.type
    FROM unnest($3::text[], $4::text[]) AS r (workflow, type)
    WHERE s.namespace = $1 AND s.task_queue = $2 AND s.workflow = r.workflow AND NOT s.external
      AND s.workflow_type IS DISTINCT FROM r.type
    RETURNING 1)
SELECT count(*)::int AS changed FROM changed
