-- What a plan waited for is known. In the order of keys, as whoever locks several of them; and never
-- SKIP LOCKED: a plan that holds the row has not seen the answer, and would put the next one off. For
-- the same reason what is due already is written too: whoever plans it is about to put it off.
UPDATE schedules s SET next_fire_at = clock_timestamp()
FROM (SELECT key FROM schedules
      WHERE namespace = $1 AND key = ANY ($2::text[]) AND retired_at IS NULL
        AND enabled AND (paused_at IS NULL OR paused_until <= (SELECT clock_timestamp()))
      ORDER BY key FOR UPDATE) AS due
WHERE s.namespace = $1 AND s.key = due.key
