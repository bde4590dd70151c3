UPDATE schedules s
SET cursor = m.cursor, next_fire_at = m.next_fire_at, max_bucket = m.max_bucket,
    failures = 0, error = NULL
FROM unnest($2::text[], $3::timestamptz[], $4::timestamptz[], $5::bigint[])
     AS m (key, cursor, next_fire_at, max_bucket)
WHERE s.namespace = $1 AND s.key = m.key
