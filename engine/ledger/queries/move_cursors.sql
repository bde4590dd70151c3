UPDATE schedules s
SET cursor = m.cursor, next_fire_at = m.next_fire_at, max_bucket = m.max_bucket,
    rules = $2, cursor_reading = m.reading, failures = 0, error = NULL
FROM unnest($3::text[], $4::timestamptz[], $5::timestamptz[], $6::bigint[], $7::timestamp[])
     AS m (key, cursor, next_fire_at, max_bucket, reading)
WHERE s.namespace = $1 AND s.key = m.key
