-- Keys that were due and free when `wake` locked them, and that a plan had put off by then. A key
-- that is locked now is being planned by a replica that sees all that `wake` saw.
UPDATE schedules s SET next_fire_at = clock_timestamp()
FROM (SELECT o.key FROM schedules o CROSS JOIN LATERAL position_of($1, o.key) AS p
      WHERE o.namespace = $1 AND o.key = ANY ($2::text[])
        AND (p.next_fire_at IS NULL OR p.next_fire_at > clock_timestamp())
      ORDER BY o.key FOR UPDATE OF o SKIP LOCKED) AS moved
WHERE s.namespace = $1 AND s.key = moved.key
RETURNING s.key
