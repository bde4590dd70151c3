-- Started, and unknown to Temporal: purged before its close was seen, or Temporal has lost it. The
-- window is not started again; the row stops standing in the way of the next.
UPDATE fires SET lost_at = clock_timestamp(), error = $3
WHERE namespace = $1 AND workflow_id = ANY ($2::text[]) AND status = 'started' AND lost_at IS NULL
RETURNING workflow_id
