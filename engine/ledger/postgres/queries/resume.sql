UPDATE schedules
SET paused_at = NULL, paused_reason = NULL, paused_by = NULL, paused_until = NULL,
    next_fire_at = CASE WHEN enabled THEN $3::timestamptz END
WHERE namespace = $1 AND key = $2
