SELECT e.*, NULL::text AS own_input, false AS sealed
FROM events e
WHERE e.namespace = $1 AND e.position IS NOT NULL AND ($2::text IS NULL OR e.key = $2)
  AND ($3::text IS NULL OR e.type = $3)
ORDER BY e.position DESC LIMIT $4
