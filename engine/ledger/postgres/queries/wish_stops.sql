-- A stop request stays until the run has closed. A terminate replaces a cancel, never the reverse.
UPDATE fires f
SET stop = w.stop, stop_at = clock_timestamp(), stop_grace = w.grace, stop_reason = w.reason,
    stop_asked_at = NULL
FROM unnest(:fire.fire_id::bigint[], :to::text[], :grace::interval[], :reason::text[]) AS w (id, stop, grace, reason)
WHERE f.namespace = $1 AND f.id = w.id AND f.status IN ('starting', 'started')
  AND (f.stop IS NULL OR (f.stop = 'cancel' AND w.stop = 'terminate'))
RETURNING f.id
