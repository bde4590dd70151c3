-- The schedules whose present definition waits for this one, by whichever of its keys.
SELECT c.key FROM schedules c
WHERE c.namespace = $1 AND c.parents && ARRAY(SELECT k.key FROM keys_of($1, $2) AS k) AND c.parents <> '{}' AND c.retired_at IS NULL
ORDER BY c.key
