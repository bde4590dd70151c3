-- Keys in whose queue something waits for nothing any more.
UPDATE schedules s SET next_fire_at = least(s.next_fire_at, clock_timestamp())
FROM (SELECT DISTINCT q.key FROM fires q
      WHERE q.namespace = $1 AND q.status = 'queued' AND q.lost_at IS NULL) AS waiting
WHERE s.namespace = $1 AND s.key = waiting.key
  AND s.paused_at IS NULL AND s.retired_at IS NULL AND s.enabled
  AND (s.next_fire_at IS NULL OR s.next_fire_at > clock_timestamp())
  AND NOT EXISTS (
      SELECT 1 FROM fires f
      WHERE f.namespace = s.namespace AND f.key = s.key AND f.lost_at IS NULL
        AND f.status IN ('claimed', 'starting', 'started') AND f.kind <> 'handler')
RETURNING s.key
