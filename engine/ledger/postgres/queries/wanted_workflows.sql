-- All of them: an apply beside an announcement may have resolved a workflow from the older types.
SELECT DISTINCT workflow FROM schedules WHERE namespace = $1 AND task_queue = $2 AND NOT external
