-- By id: two transitions of one fire are locked one after the other, so their ids are in their order, and
-- the second is never committed before the first.
WITH fresh AS (
    SELECT e.id, e.key, row_number() OVER (ORDER BY e.id) AS nth,
           row_number() OVER (PARTITION BY e.key ORDER BY e.id) AS of_key,
           count(*) OVER (PARTITION BY e.key) AS of_keys, count(*) OVER () AS number
    FROM (SELECT id, key FROM events WHERE namespace = $1 AND position IS NULL AND id >= $3 ORDER BY id LIMIT $2) AS e
), counted AS (
    INSERT INTO event_sequences AS s (namespace, key, sequence)
    SELECT $1, f.key, count(*) FROM fresh f GROUP BY f.key ORDER BY f.key
    ON CONFLICT (namespace, key) DO UPDATE SET sequence = s.sequence + excluded.sequence
    RETURNING s.key, s.sequence
), moved AS (
    UPDATE event_heads h SET position = h.position + (SELECT count(*) FROM fresh)
    WHERE h.namespace = $1
    RETURNING h.position
)
UPDATE events e
SET position = moved.position - f.number + f.nth, sequence = c.sequence - f.of_keys + f.of_key
FROM moved, fresh f JOIN counted c ON c.key = f.key
WHERE e.id = f.id
RETURNING e.id
