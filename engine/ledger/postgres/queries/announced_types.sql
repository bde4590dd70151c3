SELECT task_queue, type FROM workflow_types WHERE namespace = $1 AND task_queue = ANY ($2::text[])
