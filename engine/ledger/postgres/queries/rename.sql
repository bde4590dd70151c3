-- A schedule goes on under the key $3, whose definition is written: what belongs to none is carried there from $2,
-- and all keys before it end. They end first (`ended`), because a request id belongs to one row.
WITH old AS (
    SELECT * FROM schedules WHERE namespace = $1 AND key = $2
), ended AS (
    UPDATE schedules s
    SET successor = $3, retired_at = coalesce(s.retired_at, clock_timestamp()), next_fire_at = NULL,
        absent_since = NULL, former = '{}', request_id = NULL, failures = 0, error = NULL
    FROM old
    WHERE s.namespace = $1 AND s.key = ANY (old.key || old.former) AND s.key <> $3
    RETURNING s.key)
UPDATE schedules s
SET former = array_remove(old.former || old.key, s.key), retired_at = old.retired_at, request_id = old.request_id,
    paused_at = old.paused_at, paused_by = old.paused_by, paused_reason = old.paused_reason,
    paused_until = old.paused_until
FROM old CROSS JOIN (SELECT count(*) FROM ended) AS before
WHERE s.namespace = $1 AND s.key = $3
