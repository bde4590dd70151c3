-- Mark these dead letters as dealt with.
UPDATE fires SET dealt_at = clock_timestamp()
WHERE namespace = $1 AND workflow_id = ANY ($2::text[])
  AND status IN ('failed', 'timed_out', 'rejected') AND dealt_at IS NULL
RETURNING workflow_id
