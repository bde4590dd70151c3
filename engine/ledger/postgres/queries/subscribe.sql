-- From the newest event on. One that is there keeps its position.
WITH head AS (
    INSERT INTO event_heads AS h (namespace) VALUES ($1)
    ON CONFLICT (namespace) DO UPDATE SET position = h.position
    RETURNING position
), its AS (
    INSERT INTO subscriptions (namespace, name, kind, project, origin, events, keys, expires_at, declared_by, types)
    VALUES ($1, :name, :kind, :project, 'code', :events::text[], :keys::text[], clock_timestamp() + :lasts::interval,
            :by, :types::text[])
    ON CONFLICT (namespace, name) DO UPDATE
    SET events = excluded.events, keys = excluded.keys, types = excluded.types, expires_at = excluded.expires_at
    RETURNING name)
INSERT INTO subscription_positions (namespace, name, position)
SELECT $1, its.name, head.position FROM its, head
ON CONFLICT (namespace, name) DO NOTHING
