SELECT seen.workflow_id FROM unnest($2::text[]) AS seen (workflow_id)
WHERE NOT EXISTS (
    SELECT 1 FROM fires f WHERE f.namespace = $1 AND f.workflow_id = seen.workflow_id AND f.windows = 1)
