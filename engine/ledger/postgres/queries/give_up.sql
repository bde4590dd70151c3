-- Only fires whose send has not begun. What a rerun had dealt with is a dead letter again.
WITH gone AS (
    UPDATE fires f
    SET status = 'skipped', reason = g.reason, reason_code = g.code, owner = NULL, token = NULL, lease_until = NULL,
        awaits = NULL
    FROM unnest(:fire.fire_id::bigint[], :reason::text[], :code::text[]) AS g (id, reason, code)
    WHERE f.namespace = $1 AND f.id = g.id AND f.status IN ('claimed', 'queued')
    RETURNING f.id, f.key, f.bucket, f.series, f.kind, f.decided_at
), returned AS (
    UPDATE fires f SET dealt_at = NULL
    FROM gone
    WHERE gone.kind = 'rerun' AND f.namespace = $1 AND f.key IN (SELECT k.key FROM keys_of($1, gone.key) AS k) AND f.bucket = gone.bucket
      AND f.series = gone.series AND f.dealt_at >= gone.decided_at)
SELECT id FROM gone
