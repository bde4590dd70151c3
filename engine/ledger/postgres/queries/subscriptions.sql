SELECT s.name, s.kind, s.project, s.origin, s.events, s.keys, s.url, s.secret, p.position,
       p.failing_since, p.failing_error, p.retry_at
FROM subscriptions s JOIN subscription_positions p ON p.namespace = s.namespace AND p.name = s.name
WHERE s.namespace = $1 AND (s.expires_at IS NULL OR s.expires_at > (SELECT clock_timestamp()))
ORDER BY s.name
