-- The first namespace that a worker comes with is the ledger's. Of two that come at once one is.
INSERT INTO bindings (namespace, number, namespace_id, place, current, bound_by)
SELECT $1, 1, :id, :place, true, :by
WHERE NOT EXISTS (SELECT FROM bindings b WHERE b.namespace = $1)
ON CONFLICT DO NOTHING
