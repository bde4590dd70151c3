-- Rule L1: a fire moves by compare-and-set on its status and its owner's token.
UPDATE fires f
SET status = o.status,
    run_id = coalesce(o.run_id, f.run_id),
    started_at = coalesce(o.started_at, f.started_at),
    timing = coalesce(o.timing, f.timing),
    reason = coalesce(o.reason, f.reason),
    error = o.error,
    owner = NULL,
    token = CASE WHEN o.status = 'starting' THEN f.token END,
    lease_until = CASE WHEN o.status = 'starting' THEN clock_timestamp() + o.retry_after END
FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::timestamptz[],
            $7::text[], $8::text[], $9::interval[])
     AS o (id, token, status, timing, run_id, started_at, reason, error, retry_after)
WHERE f.id = o.id AND f.token = o.token AND f.status = 'starting'
RETURNING f.id
