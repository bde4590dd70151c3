-- Started, but unknown to Temporal: purged before its close was seen, or lost by Temporal. The
-- window is not started again; its row no longer blocks the next one. Locked in ID order, as in
-- record_evidence.sql.
WITH locked AS (
    SELECT id FROM fires
    WHERE namespace = $1 AND workflow_id = ANY ($2::text[]) AND status = 'started' AND lost_at IS NULL
      AND binding = $4
    ORDER BY id FOR UPDATE)
UPDATE fires SET lost_at = clock_timestamp(), error = $3, failing = NULL
WHERE id IN (SELECT id FROM locked) AND status = 'started' AND lost_at IS NULL
RETURNING workflow_id
