-- $3: look at every schedule of the task queue, not only at those that found no type yet.
SELECT DISTINCT workflow FROM schedules
WHERE namespace = $1 AND task_queue = $2 AND NOT external AND ($3 OR workflow_type IS NULL)
