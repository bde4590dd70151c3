UPDATE subscriptions SET holder = $3, lease_until = clock_timestamp() + $4::interval
WHERE namespace = $1 AND name = $2 AND (holder = $3 OR lease_until IS NULL OR lease_until <= (SELECT clock_timestamp()))
RETURNING name, kind, project, origin, events, keys, url, secret, position
