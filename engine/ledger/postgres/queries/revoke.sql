-- Only fires whose send has not begun. A pause leaves queued fires, manual runs and backfilled windows
-- alone, as take_over.sql does; retirement ($4) ends everything except runs that follow a fire that
-- ended badly.
UPDATE fires SET status = 'skipped', reason = $3, reason_code = $3, owner = NULL, token = NULL, lease_until = NULL,
    awaits = NULL
-- A fire that has not started is never lost; the condition allows the use of an index.
WHERE namespace = $1 AND status IN ('claimed', 'queued') AND lost_at IS NULL
  AND key IN (SELECT k.key FROM unnest($2::text[]) AS g (key) CROSS JOIN LATERAL keys_of($1, g.key) AS k)
  AND CASE WHEN $4 THEN kind <> 'handler' ELSE status = 'claimed' AND kind = 'window' AND timing IS DISTINCT FROM 'backfill' END
