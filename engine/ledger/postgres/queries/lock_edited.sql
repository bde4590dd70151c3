-- All that an apply or a prune writes to, in key order and at once: `mark_absent` writes to what is
-- absent and to what no longer is. Locked by itself, after the edited keys, it would hold a later
-- key while it waits for an earlier one: a deadlock with whoever locks in key order.
SELECT key FROM schedules
WHERE namespace = $1
  AND (key = ANY ($3::text[]) OR (project = $2 AND absent_since IS NOT NULL))
ORDER BY key FOR UPDATE
