-- From the newest event on. One that is there keeps its position, and is only renewed if it still is ($8).
WITH head AS (
    INSERT INTO event_heads AS h (namespace) VALUES ($1)
    ON CONFLICT (namespace) DO UPDATE SET position = h.position
    RETURNING position)
INSERT INTO subscriptions AS s (namespace, name, kind, project, origin, events, keys, position, expires_at, declared_by)
SELECT $1, $2, $3, $4, 'code', $5::text[], $6::text[], head.position, clock_timestamp() + $7::interval, $9
FROM head
WHERE NOT $8 OR EXISTS (SELECT 1 FROM subscriptions o WHERE o.namespace = $1 AND o.name = $2)
ON CONFLICT (namespace, name) DO UPDATE
SET events = excluded.events, keys = excluded.keys, expires_at = excluded.expires_at
