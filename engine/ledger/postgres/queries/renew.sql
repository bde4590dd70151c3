-- No sweeper takes what its owner still holds. A lease that has ended is not renewed: an owner that
-- was suspended that long no longer owns the fire. SKIP LOCKED: a locked fire is being settled, and
-- waiting for it in another order than that statement could deadlock.
WITH held AS (
    SELECT f.id FROM fires f
    JOIN unnest($2::bigint[], $3::uuid[]) AS h (id, token) ON h.id = f.id AND h.token = f.token
    WHERE f.namespace = $1 AND f.status || '' = 'starting'  -- see settle
      AND f.lease_until > (SELECT clock_timestamp())
    FOR UPDATE OF f SKIP LOCKED)
UPDATE fires f
-- A lease never moves back, even if the clock did.
SET lease_until = greatest(f.lease_until, clock_timestamp() + $4::interval)
FROM held WHERE f.id = held.id
RETURNING f.id
