-- A namespace that the ledger returns to keeps its number. Only after leave_binding.sql: one is current.
INSERT INTO bindings AS b (namespace, number, namespace_id, place, current, bound_by)
SELECT $1, coalesce(max(o.number), 0) + 1, :id, :place, true, :by FROM bindings o WHERE o.namespace = $1
ON CONFLICT (namespace, namespace_id) DO UPDATE
SET current = true, closed_at = NULL, place = excluded.place, bound_by = excluded.bound_by,
    bound_at = clock_timestamp()
