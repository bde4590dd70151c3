UPDATE fires SET second_runs = array_append(second_runs, $3::text)
WHERE namespace = $1 AND workflow_id = $2 AND windows = 1 AND $3 <> ALL (coalesce(second_runs, '{}'))
RETURNING id
