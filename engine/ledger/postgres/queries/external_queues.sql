SELECT DISTINCT task_queue FROM schedules
WHERE namespace = $1 AND external AND retired_at IS NULL ORDER BY task_queue
