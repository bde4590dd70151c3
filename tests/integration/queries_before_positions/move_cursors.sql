UPDATE schedules s
SET cursor = m.cursor, next_fire_at = m.next_fire_at, max_bucket = m.max_bucket,
    rules = $2, cursor_reading = m.reading, failures = 0, error = NULL,
    paused_at = CASE WHEN m.resumed THEN NULL ELSE s.paused_at END,
    paused_by = CASE WHEN m.resumed THEN NULL ELSE s.paused_by END,
    paused_reason = CASE WHEN m.resumed THEN NULL ELSE s.paused_reason END,
    paused_until = CASE WHEN m.resumed THEN NULL ELSE s.paused_until END
FROM unnest($3::text[], $4::timestamptz[], $5::timestamptz[], $6::bigint[], $7::timestamp[], $8::bool[])
     AS m (key, cursor, next_fire_at, max_bucket, reading, resumed)
WHERE s.namespace = $1 AND s.key = m.key
