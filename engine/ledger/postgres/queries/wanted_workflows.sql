-- All of them: an apply that ran beside an announcement may have resolved a workflow from what
-- was announced before.
SELECT DISTINCT workflow FROM schedules WHERE namespace = $1 AND task_queue = $2 AND NOT external
