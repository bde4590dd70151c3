-- Of keys whose definition changes: what operators skipped ahead is written anew, or dropped.
DELETE FROM fires f
USING schedules s
WHERE s.namespace = f.namespace AND s.key = f.key AND f.series = s.series AND f.fire_time > s.cursor
  AND f.namespace = $1 AND f.key = ANY ($2::text[])
  AND f.kind = 'window' AND f.status = 'skipped' AND f.reason LIKE 'user%'
RETURNING f.key, f.fire_time, f.workflow_id, f.reason
