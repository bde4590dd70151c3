SELECT name, kind, project, origin, events, keys, url, secret, position FROM subscriptions
WHERE namespace = $1 AND (expires_at IS NULL OR expires_at > (SELECT clock_timestamp()))
ORDER BY name
