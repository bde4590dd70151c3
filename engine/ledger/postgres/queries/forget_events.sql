-- In pieces, in the order of their ids, which is nearly that of their age. One without a position was left
-- behind by a subscription that has ended; a reader that watches keeps none. A hook is delivered by workers of
-- its project alone, and while there is none it keeps events for seven days, as a listener does.
WITH piece AS (
    SELECT id, position, at < (SELECT clock_timestamp()) - $2::interval AS old,
           at < (SELECT clock_timestamp()) - greatest($2::interval, interval '7 days') AS older
    FROM events WHERE namespace = $1 AND id > $3 ORDER BY id LIMIT $4
), first AS MATERIALIZED (
    SELECT min(p.position) AS position, count(*) > 0 AS there,
           min(p.position) FILTER (WHERE s.kind <> 'hook' OR EXISTS (
               SELECT 1 FROM replicas r WHERE r.namespace = $1 AND r.project = s.project)) AS served
    FROM subscriptions s JOIN subscription_positions p ON p.namespace = s.namespace AND p.name = s.name
    WHERE s.namespace = $1 AND s.kind <> 'reader'
), gone AS (
    DELETE FROM events USING piece, first
    WHERE events.id = piece.id AND piece.old AND CASE WHEN first.there
          THEN piece.position <= first.position OR (piece.older AND piece.position <= coalesce(first.served, piece.position))
          ELSE true END
      AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.namespace = $1 AND d.position = piece.position)
)
SELECT max(id) AS last, coalesce(bool_and(old), false) AND count(*) = $4 AS goes_on FROM piece
