SELECT input FROM workflow_types WHERE namespace = $1 AND task_queue = $2 AND type = $3
