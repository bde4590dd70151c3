-- Schedules that may fire: not held, and with a window to come.
SELECT lane, workflow, workflow_type, count(*) AS schedules FROM schedules
WHERE namespace = $1 AND project = $2 AND retired_at IS NULL AND enabled AND paused_at IS NULL
  AND next_fire_at IS NOT NULL
GROUP BY 1, 2, 3
