-- A hook that is there keeps its position and what it has still to deliver.
WITH head AS (
    INSERT INTO event_heads AS h (namespace) VALUES ($1)
    ON CONFLICT (namespace) DO UPDATE SET position = h.position
    RETURNING position)
INSERT INTO subscriptions AS s (namespace, name, kind, project, origin, events, keys, url, secret, position, declared_by)
SELECT $1, n.name, 'hook', $2, $3, string_to_array(n.events, ' '), string_to_array(n.keys, ' '), n.url, n.secret, head.position, $4
FROM head, unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::text[]) AS n (name, events, keys, url, secret)
ON CONFLICT (namespace, name) DO UPDATE
SET origin = excluded.origin, events = excluded.events, keys = excluded.keys, secret = excluded.secret,
    declared_by = excluded.declared_by, declared_at = clock_timestamp()
