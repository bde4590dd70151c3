-- Renew the slots that a replica uses or waits with, give back its others and take free ones, in
-- one statement, for each lane, or fairness key in one. $2 is the replica; $3 is the lease; $4
-- whether it may take slots whose lease has ended; $5 the number of this call: if the
-- network swaps two calls, the earlier one must not give back what the later one kept.
WITH asked AS (
    SELECT a.lane, a.queue, a.running, a.wanted, limits.concurrency
    FROM unnest(:lane::text[], :queue::text[], :running::int[], :wanted::int[], :of_key::bool[])
         AS a (lane, queue, running, wanted, of_key)
    JOIN queues q ON q.namespace = $1 AND q.queue = a.queue
    CROSS JOIN LATERAL (
        SELECT CASE WHEN a.of_key THEN q.per_key ELSE q.concurrency END AS concurrency) AS limits
    WHERE limits.concurrency IS NOT NULL),
mine AS (
    SELECT s.lane, s.slot, row_number() OVER (PARTITION BY s.lane ORDER BY s.slot) AS place
    FROM queue_slots s WHERE s.namespace = $1 AND s.holder = $2),
-- Slots beyond a queue that was made smaller stay until their steps have ended.
kept AS (
    SELECT m.lane, m.slot FROM mine m JOIN asked a USING (lane)
    WHERE m.place <= a.running OR (m.place <= a.wanted AND m.slot < a.concurrency)),
given_back AS (
    DELETE FROM queue_slots s USING mine m
    WHERE s.namespace = $1 AND s.lane = m.lane AND s.slot = m.slot AND s.holder = $2 AND s.asked < $5
      AND (m.lane, m.slot) NOT IN (SELECT k.lane, k.slot FROM kept k)),
renewed AS (
    UPDATE queue_slots s
    -- A lease never moves back, even if the clock did.
    SET lease_until = greatest(s.lease_until, clock_timestamp() + $3::interval), asked = $5
    FROM kept k WHERE s.namespace = $1 AND s.lane = k.lane AND s.slot = k.slot AND s.holder = $2
      AND s.asked < $5
    RETURNING s.lane, s.slot),
free AS (
    SELECT a.lane, a.queue, numbers.slot,
           row_number() OVER (PARTITION BY a.lane ORDER BY numbers.slot) AS place,
           least(a.wanted - (SELECT count(*) FROM kept k WHERE k.lane = a.lane),
                 -- Slots beyond a smaller queue count: the next step waits until they are free.
                 a.concurrency - (SELECT count(*) FROM queue_slots s
                                  WHERE s.namespace = $1 AND s.lane = a.lane
                                    AND CASE WHEN s.holder = $2
                                             THEN (s.lane, s.slot) IN (SELECT k.lane, k.slot FROM kept k)
                                             ELSE NOT $4 OR s.lease_until > clock_timestamp() END)) AS most
    FROM asked a CROSS JOIN LATERAL generate_series(0, a.concurrency - 1) AS numbers (slot)
    WHERE NOT EXISTS (
        SELECT FROM queue_slots s
        WHERE s.namespace = $1 AND s.lane = a.lane AND s.slot = numbers.slot
          AND (s.holder = $2 OR NOT $4 OR s.lease_until > clock_timestamp()))),
taken AS (
    INSERT INTO queue_slots AS s (namespace, lane, slot, queue, holder, lease_until, asked)
    SELECT $1, f.lane, f.slot, f.queue, $2, clock_timestamp() + $3::interval, $5
    FROM free f WHERE f.place <= f.most
    ORDER BY f.lane, f.slot
    ON CONFLICT (namespace, lane, slot) DO UPDATE
    SET holder = excluded.holder, queue = excluded.queue, lease_until = excluded.lease_until,
        asked = excluded.asked
    -- Check the row as it is now: another replica may have renewed or taken it meanwhile.
    WHERE $4 AND s.lease_until <= clock_timestamp()
    RETURNING s.lane, s.slot)
-- No further step begins on a slot beyond a smaller queue.
SELECT a.lane, count(*) AS usable
FROM (SELECT * FROM renewed UNION ALL SELECT * FROM taken) AS h JOIN asked a USING (lane)
WHERE h.slot < a.concurrency
GROUP BY a.lane
