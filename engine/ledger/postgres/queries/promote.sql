-- A queued fire becomes claimed without an owner: any replica with room sends it next.
UPDATE fires f
SET status = 'claimed', lease_until = coalesce(p.not_before, clock_timestamp()),
    reason = CASE WHEN f.awaits IS NULL THEN f.reason ELSE f.awaits ->> 'reason' END,
    reason_code = CASE WHEN f.awaits IS NULL THEN f.reason_code ELSE f.awaits ->> 'code' END,
    awaits = NULL
FROM unnest(:fire.fire_id::bigint[], :not_before::timestamptz[]) AS p (id, not_before)
WHERE f.namespace = $1 AND f.id = p.id AND f.status = 'queued'
