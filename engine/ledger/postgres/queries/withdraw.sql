DELETE FROM replicas WHERE namespace = $1 AND replica = $2
