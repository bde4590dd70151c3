-- Only what nobody has begun to send.
UPDATE fires SET status = 'skipped', reason = $3, owner = NULL, token = NULL, lease_until = NULL,
    awaits = NULL
WHERE namespace = $1 AND key = ANY ($2::text[]) 
  -- A pause lets wait what waits, and leaves manual runs alone; retirement ends everything, but
  -- not what follows a fire that ended badly.
  AND CASE WHEN $4 THEN status IN ('claimed', 'queued') AND kind <> 'handler' ELSE status = 'claimed' AND kind = 'window' END
