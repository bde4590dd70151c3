-- Round-robin: the run seen, or started, longest ago comes first, and is marked as seen. Beside an
-- old snapshot no dead index entry is removed: $4 is where to begin.
WITH chosen AS (
    SELECT id, coalesce(seen_at, started_at) AS unseen_since FROM fires
    WHERE namespace = $1 AND binding = $5 AND status = 'started' AND lost_at IS NULL
      AND coalesce(seen_at, started_at) >= $4 AND coalesce(seen_at, started_at) < $3
    ORDER BY coalesce(seen_at, started_at) LIMIT $2
    FOR UPDATE SKIP LOCKED)
UPDATE fires f SET seen_at = clock_timestamp() FROM chosen WHERE f.id = chosen.id
RETURNING f.workflow_id, f.run_id, f.started_at, chosen.unseen_since
