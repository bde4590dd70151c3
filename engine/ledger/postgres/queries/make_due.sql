-- What a plan waited for is known. Locks in key order, as every editor does, and never with SKIP
-- LOCKED: a plan that holds the row has not seen the answer, and would put off the next one. Keys
-- that are due already are written too: a plan may be about to put them off.
UPDATE schedules s SET next_fire_at = clock_timestamp()
FROM (SELECT key FROM schedules
      WHERE namespace = $1 AND key = ANY ($2::text[]) AND retired_at IS NULL
        AND enabled AND (paused_at IS NULL OR paused_until <= (SELECT clock_timestamp()))
      ORDER BY key FOR UPDATE) AS due
WHERE s.namespace = $1 AND s.key = due.key
RETURNING s.key
