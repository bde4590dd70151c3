-- Only of the run that was read: it may have been reset meanwhile.
WITH locked AS (
    SELECT id FROM fires WHERE namespace = $1 AND workflow_id = ANY (:workflow_id::text[])
    ORDER BY id FOR UPDATE)
UPDATE fires f
SET error = n.error, not_undone = n.not_undone, failure = n.failure, given_up = n.given_up,
    tries = coalesce(n.tries, f.tries), step_retries = greatest(f.step_retries, n.step_retries),
    tried = coalesce(n.tried, f.tried), counted = CASE WHEN n.step_retries IS NULL THEN 'wanted' ELSE 'read' END
FROM unnest(:workflow_id::text[], :run_id::text[], :error::text[], :not_undone::jsonb[], :failure_text::jsonb[],
            :given_up::text[], :tries::int[], :step_retries::int[], :tried_text::jsonb[])
     AS n (workflow_id, run_id, error, not_undone, failure, given_up, tries, step_retries, tried)
WHERE f.id IN (SELECT id FROM locked) AND f.namespace = $1 AND f.workflow_id = n.workflow_id
  AND f.run_id = n.run_id AND f.counted = 'unread'
RETURNING f.workflow_id
