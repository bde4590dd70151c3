UPDATE duties SET expires_at = 'epoch' WHERE namespace = $1 AND duty = $2 AND holder = $3
