SELECT number, namespace_id, place, current, bound_at, bound_by, closed_at
FROM bindings WHERE namespace = $1 ORDER BY number
