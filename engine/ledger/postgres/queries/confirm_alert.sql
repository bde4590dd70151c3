-- $3 is the state that the receiver has confirmed; what changed meanwhile is sent too.
WITH ended AS (
    DELETE FROM alerts WHERE namespace = $1 AND name = $2 AND resolved_at = $3::timestamptz)
UPDATE alerts
SET sent = $3 IS NULL, attempts = 0, error = NULL,
    due_at = CASE WHEN resolved_at IS DISTINCT FROM $3 THEN clock_timestamp() END
WHERE namespace = $1 AND name = $2 AND (resolved_at = $3) IS NOT TRUE
