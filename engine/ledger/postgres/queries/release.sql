-- A fire that waited for other schedules now waits in its own queue.
UPDATE fires SET reason = awaits ->> 'reason',
    reason_code = awaits ->> 'code', awaits = NULL
WHERE namespace = $1 AND id = ANY ($2::bigint[]) AND status = 'queued' AND awaits IS NOT NULL
