SELECT digest_key FROM seals WHERE namespace = $1 AND project = $2
