DELETE FROM queue_slots WHERE namespace = $1 AND holder = $2
