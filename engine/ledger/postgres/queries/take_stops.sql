-- Stop requests that are due, taken by one replica; others see them again only when its lease ends.
-- A cancel whose grace has passed becomes a terminate.
UPDATE fires
SET stop_at = clock_timestamp() + $4::interval,
    stop = CASE WHEN stop_asked_at + stop_grace <= clock_timestamp() THEN 'terminate' ELSE stop END
WHERE id IN (
    SELECT id FROM fires
    WHERE namespace = $1 AND project = $2 AND stop IS NOT NULL AND status = 'started'
      AND binding = $5 AND stop_at <= (SELECT clock_timestamp())
    ORDER BY stop_at LIMIT $3
    FOR UPDATE SKIP LOCKED)
RETURNING id AS fire_id, workflow_id, first_run_id, stop, stop_grace, stop_reason,
          stop = 'cancel' AND stop_asked_at IS NOT NULL AS asked
