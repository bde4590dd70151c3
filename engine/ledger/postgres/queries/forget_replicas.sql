DELETE FROM replicas WHERE namespace = $1 AND seen_at < clock_timestamp() - interval '1 day'
