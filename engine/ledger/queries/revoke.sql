-- Only what nobody has begun to send.
UPDATE fires SET status = 'skipped', reason = $3, owner = NULL, token = NULL, lease_until = NULL
WHERE namespace = $1 AND key = ANY ($2::text[]) AND status = 'claimed'
  AND ($4 OR kind = 'window')
