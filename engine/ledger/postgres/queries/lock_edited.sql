-- All rows that an apply or a prune writes, at once and in key order. `mark_absent` writes rows
-- that are absent or no longer are. Locked separately after the edited keys, it would hold a later
-- key while waiting for an earlier one, and deadlock with statements that lock in key order.
SELECT key FROM schedules
WHERE namespace = $1
  AND (key = ANY ($3::text[]) OR (project = $2 AND absent_since IS NOT NULL))
ORDER BY key FOR UPDATE
