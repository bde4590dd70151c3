-- By compare-and-set: of replicas that looked at a run at the same time one writes, and reports it. Locked in
-- ID order, as in record_evidence.sql.
WITH locked AS (
    SELECT id FROM fires
    WHERE namespace = $1 AND workflow_id = ANY (:workflow_id::text[]) AND status = 'started' AND lost_at IS NULL
    ORDER BY id FOR UPDATE)
UPDATE fires f SET failing = n.now
FROM unnest(:workflow_id::text[], :before::jsonb[], :now::jsonb[]) AS n (workflow_id, before, now)
WHERE f.id IN (SELECT id FROM locked)
  AND f.namespace = $1 AND f.workflow_id = n.workflow_id AND f.status = 'started' AND f.lost_at IS NULL
  AND f.failing IS NOT DISTINCT FROM n.before
RETURNING f.workflow_id
