-- The highest number, and not how many: old ones leave the ledger.
SELECT coalesce(max(substring(workflow_id FROM ':rerun:([0-9]+)$')::int), 0) AS reruns FROM fires
WHERE namespace = $1 AND workflow_id LIKE replace(replace($2, '\', '\\'), '_', '\_') || ':rerun:%'
