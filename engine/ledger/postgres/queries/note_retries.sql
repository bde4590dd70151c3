-- What is read from the history has these retries. A step on a task queue whose workers report
-- nothing makes the history the only source.
WITH locked AS (
    SELECT id FROM fires WHERE namespace = $1 AND workflow_id = ANY (:workflow_id::text[])
    ORDER BY id FOR UPDATE)
UPDATE fires f
SET step_retries = coalesce(f.step_retries, 0) + n.retries,
    counted = CASE WHEN n.elsewhere THEN CASE WHEN f.closed_at IS NULL THEN 'elsewhere' ELSE 'wanted' END ELSE f.counted END
FROM unnest(:workflow_id::text[], :retries::int[], :elsewhere::bool[]) AS n (workflow_id, retries, elsewhere)
WHERE f.id IN (SELECT id FROM locked) AND f.namespace = $1 AND f.workflow_id = n.workflow_id
  AND f.counted IS DISTINCT FROM 'read'
