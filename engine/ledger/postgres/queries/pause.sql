-- A pause with an end is planned at its end.
UPDATE schedules
SET paused_at = $3, paused_reason = $4, paused_by = $5, paused_until = $6::timestamptz,
    next_fire_at = CASE WHEN enabled THEN $6::timestamptz END
WHERE namespace = $1 AND key = $2
