-- A pause with an end ($6) is planned at its end; without a pause ($3) the schedule goes on, planned next at $7.
UPDATE schedules
SET paused_at = $3, paused_reason = $4, paused_by = $5, paused_until = $6::timestamptz,
    next_fire_at = CASE WHEN enabled THEN $7::timestamptz END
WHERE namespace = $1 AND key = $2
