-- Only fires whose send has not begun.
UPDATE fires f
SET status = 'skipped', reason = g.reason, reason_code = g.code, owner = NULL, token = NULL, lease_until = NULL,
    awaits = NULL
FROM unnest($2::bigint[], $3::text[], $4::text[]) AS g (id, reason, code)
WHERE f.namespace = $1 AND f.id = g.id AND f.status IN ('claimed', 'queued')
RETURNING f.id
