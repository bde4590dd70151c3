-- Only what nobody has begun to send.
UPDATE fires
SET status = 'skipped', reason = $3, owner = NULL, token = NULL, lease_until = NULL
WHERE namespace = $1 AND workflow_id = $2 AND status IN ('claimed', 'queued')
RETURNING id
