-- The runs were looked at, and were open then.
UPDATE fires SET open_at = greatest(open_at, $3), lost_at = NULL
WHERE namespace = $1 AND workflow_id = ANY ($2::text[]) AND status = 'started'
