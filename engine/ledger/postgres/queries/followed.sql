UPDATE fires SET followed_at = clock_timestamp() WHERE namespace = $1 AND id = ANY ($2::bigint[])
