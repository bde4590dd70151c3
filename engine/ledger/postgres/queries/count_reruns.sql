-- The highest number, not the count, because old reruns leave the ledger. They are found by their
-- window ($3, $4): `workflow_id LIKE ...` reads every run under a generic plan, and wherever texts
-- do not compare by their bytes.
SELECT coalesce(max(substring(workflow_id FROM ':rerun:([0-9]+)$')::int), 0) AS reruns FROM fires
WHERE namespace = $1 AND key = $3 AND fire_time = $4 AND kind <> 'window'
  AND starts_with(workflow_id, $2 || ':rerun:')
