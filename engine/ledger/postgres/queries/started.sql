SELECT workflow, start_id, digest, requested, project, task_queue, requested_by, requested_at
FROM starts WHERE namespace = $1 AND workflow = $2 AND start_id = $3
