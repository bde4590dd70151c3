-- Only of the run that was read: a reset run has a history of its own. Workers may have reported
-- retries that no history has, because the run was ended while a step waited for its next attempt.
WITH locked AS (
    SELECT id FROM fires WHERE namespace = $1 AND workflow_id = ANY (:workflow_id::text[])
    ORDER BY id FOR UPDATE)
UPDATE fires f
SET tries = coalesce(n.tries, f.tries), step_retries = greatest(f.step_retries, n.step_retries),
    tried = coalesce(n.tried, f.tried), counted = 'read'
FROM unnest(:workflow_id::text[], :run_id::text[], :tries::int[], :step_retries::int[], :tried_text::jsonb[])
     AS n (workflow_id, run_id, tries, step_retries, tried)
WHERE f.id IN (SELECT id FROM locked) AND f.namespace = $1 AND f.workflow_id = n.workflow_id
  AND f.run_id = n.run_id AND f.counted = 'wanted'
