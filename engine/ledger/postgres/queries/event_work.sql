-- All that a deliverer asks while nothing happens. What has no position yet is an index of its own.
SELECT EXISTS (SELECT 1 FROM subscriptions s
               WHERE s.namespace = $1 AND (s.expires_at IS NULL OR s.expires_at > (SELECT clock_timestamp()))) AS subscribed,
       EXISTS (SELECT 1 FROM events e WHERE e.namespace = $1 AND e.position IS NULL) AS fresh,
       ARRAY(SELECT s.name
             FROM subscriptions s
             JOIN event_heads h ON h.namespace = s.namespace
             WHERE s.namespace = $1 AND (s.kind = 'hook' OR (s.kind = 'listener' AND s.name = ANY ($3::text[])))
               AND (s.holder = $2 OR s.lease_until IS NULL OR s.lease_until <= (SELECT clock_timestamp()))
               AND (s.position < h.position
                    OR EXISTS (SELECT 1 FROM deliveries d
                               WHERE d.namespace = $1 AND d.subscription = s.name
                                 AND d.due_at <= (SELECT clock_timestamp())))
             ORDER BY s.name) AS due
