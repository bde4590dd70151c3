-- Only an operator's skip, and only before its window has come.
DELETE FROM fires f
USING positions p
WHERE p.namespace = f.namespace AND p.key = f.key AND f.fire_time > p.cursor
  AND f.namespace = $1 AND f.key = $2 AND f.series = $3 AND f.fire_time = $4
  AND f.kind = 'window' AND f.status = 'skipped' AND f.reason_code = 'user'
RETURNING f.id
