-- The runs were checked, and were open. Locked in ID order, as in record_evidence.sql.
WITH locked AS (
    SELECT id FROM fires
    WHERE namespace = $1 AND workflow_id = ANY ($2::text[]) AND status = 'started'
    ORDER BY id FOR UPDATE)
UPDATE fires SET open_at = greatest(open_at, $3), lost_at = NULL
WHERE id IN (SELECT id FROM locked) AND status = 'started'
RETURNING workflow_id, failing
