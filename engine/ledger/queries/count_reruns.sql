SELECT count(*)::int AS reruns FROM fires
WHERE namespace = $1 AND workflow_id LIKE replace(replace($2, '\', '\\'), '_', '\_') || ':rerun:%'
