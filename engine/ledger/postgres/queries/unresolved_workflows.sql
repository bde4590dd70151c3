-- Workflows without a type: an application may have declared them in a transaction that was open while the
-- types were announced. A partial index has only these.
SELECT DISTINCT workflow FROM schedules
WHERE namespace = $1 AND task_queue = $2 AND NOT external AND workflow_type IS NULL AND retired_at IS NULL
