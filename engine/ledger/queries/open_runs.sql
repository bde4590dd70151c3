-- Round-robin: whoever was looked at longest ago comes first, and is marked as looked at.
UPDATE fires SET seen_at = clock_timestamp()
WHERE id IN (
    SELECT id FROM fires
    WHERE namespace = $1 AND status = 'started' AND lost_at IS NULL
      AND started_at < $3 AND (seen_at IS NULL OR seen_at < $3)
    ORDER BY seen_at NULLS FIRST LIMIT $2
    FOR UPDATE SKIP LOCKED)
RETURNING workflow_id, run_id, started_at
