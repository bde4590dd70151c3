-- Only fires whose send has not begun.
UPDATE fires
SET status = 'skipped', reason = $3, reason_code = $4, owner = NULL, token = NULL, lease_until = NULL,
    awaits = NULL
WHERE namespace = $1 AND workflow_id = ANY ($2::text[]) AND status IN ('claimed', 'queued')
RETURNING workflow_id
