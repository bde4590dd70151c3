-- A hook that is there keeps its position and what it has still to deliver.
WITH head AS (
    INSERT INTO event_heads AS h (namespace) VALUES ($1)
    ON CONFLICT (namespace) DO UPDATE SET position = h.position
    RETURNING position
), its AS (
    INSERT INTO subscriptions (namespace, name, kind, project, origin, events, keys, types, url, secret, declared_by)
    SELECT $1, n.name, 'hook', $2, $3, string_to_array(n.events, ' '), string_to_array(n.keys, ' '),
           string_to_array(n.types, ' '), n.url, n.secret, $4
    FROM unnest(:name::text[], :events::text[], :keys::text[], :url::text[], :secret::text[], :types::text[])
         AS n (name, events, keys, url, secret, types)
    ON CONFLICT (namespace, name) DO UPDATE
    SET origin = excluded.origin, events = excluded.events, keys = excluded.keys, types = excluded.types, secret = excluded.secret,
        declared_by = excluded.declared_by, declared_at = clock_timestamp()
    RETURNING name)
INSERT INTO subscription_positions (namespace, name, position)
SELECT $1, its.name, head.position FROM its, head
ON CONFLICT (namespace, name) DO NOTHING
