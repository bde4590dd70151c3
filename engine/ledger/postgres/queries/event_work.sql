-- All that a deliverer asks while nothing happens. What has no position yet is an index of its own; beside
-- an old snapshot no dead entry of it is removed, and $4 is where to begin.
SELECT EXISTS (SELECT 1 FROM subscriptions s
               WHERE s.namespace = $1 AND (s.expires_at IS NULL OR s.expires_at > (SELECT clock_timestamp()))) AS subscribed,
       EXISTS (SELECT 1 FROM events e WHERE e.namespace = $1 AND e.position IS NULL AND e.id >= $4) AS fresh,
       ARRAY(SELECT s.name
             FROM subscriptions s
             JOIN subscription_positions p ON p.namespace = s.namespace AND p.name = s.name
             JOIN event_heads h ON h.namespace = s.namespace
             WHERE s.namespace = $1 AND (s.kind = 'hook' AND s.project = $5 OR s.kind = 'listener' AND s.name = ANY ($3::text[]))
               AND (p.holder = $2 OR p.lease_until IS NULL OR p.lease_until <= (SELECT clock_timestamp()))
               AND (p.position < h.position
                    OR (p.retry_at IS NULL OR p.retry_at <= (SELECT clock_timestamp()))
                       AND EXISTS (SELECT 1 FROM deliveries d
                                   WHERE d.namespace = $1 AND d.subscription = s.name
                                     AND d.due_at <= (SELECT clock_timestamp())))
             ORDER BY s.name) AS due
