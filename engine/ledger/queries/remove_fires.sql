DELETE FROM fires WHERE namespace = $1 AND id = ANY ($2::bigint[])
