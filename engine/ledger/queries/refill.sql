-- A window that surely has no run gets one after all; what it was before stays in its history.
UPDATE fires
SET status = $4, timing = 'backfill', reason = NULL, error = NULL, dealt_at = NULL, followed_at = NULL, overlap = $5,
    definition_version = $6, workflow_type = $7, task_queue = $8,
    lease_until = CASE WHEN $4 = 'claimed' THEN clock_timestamp() END,
    history = history || jsonb_build_object('status', status, 'reason', reason, 'error', error,
                                            'until', clock_timestamp())
WHERE namespace = $1 AND workflow_id = $2 AND fire_time = $3 AND windows = 1
  AND status IN ('skipped', 'expired', 'rejected') AND run_id IS NULL
RETURNING id
