-- What waited for other schedules goes on waiting in the queue of its own.
UPDATE fires SET reason = awaits ->> 'reason', awaits = NULL
WHERE namespace = $1 AND id = ANY ($2::bigint[]) AND status = 'queued' AND awaits IS NOT NULL
