-- Only what nobody has begun to send. A pause lets wait what waits, and leaves manual runs alone;
-- retirement ($4) ends everything, but not what follows a fire that ended badly.
UPDATE fires SET status = 'skipped', reason = $3, owner = NULL, token = NULL, lease_until = NULL,
    awaits = NULL
-- What is not started is never lost; that it is said lets an index find it.
WHERE namespace = $1 AND key = ANY ($2::text[]) AND status IN ('claimed', 'queued') AND lost_at IS NULL
  AND CASE WHEN $4 THEN kind <> 'handler' ELSE status = 'claimed' AND kind = 'window' END
