UPDATE subscription_positions p SET holder = $3, lease_until = clock_timestamp() + $4::interval
FROM subscriptions s
WHERE p.namespace = $1 AND p.name = $2 AND s.namespace = $1 AND s.name = $2
  AND (p.holder = $3 OR p.lease_until IS NULL OR p.lease_until <= (SELECT clock_timestamp()))
RETURNING s.name, s.kind, s.project, s.origin, s.events, s.keys, s.url, s.secret, p.position,
          p.failing_since, p.failing_error, p.retry_at,
          (p.retry_at IS NULL OR p.retry_at <= clock_timestamp()) AS may_retry
