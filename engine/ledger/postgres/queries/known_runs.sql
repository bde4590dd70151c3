-- The runs that the ledger knows by these ids; a row that has none yet is known too.
SELECT workflow_id, run_id, coalesce(first_run_id, run_id) AS first_run_id, closed_at IS NOT NULL AS closed
FROM fires
WHERE namespace = $1 AND workflow_id = ANY ($2::text[]) AND windows = 1
