-- Schedules in key order. A line with a `:name` is left out unless that filter is given: under a generic
-- plan `$2 IS NULL OR s.project = $2` would use no index, and a topic be looked for in every definition.
-- The first two lines, `:held` and `:over` follow from other filters, and reject most schedules before all that is
-- joined to them is read: at most 5000 fires of the statuses that it is about.
-- CASE: the planner expects one row in 200 of an equality that it knows nothing of, and would read and sort all
-- schedules for a page; of a CASE it expects every other one, and follows the keys.
WITH became AS MATERIALIZED (SELECT key FROM fires WHERE namespace = $1 AND status = ANY (:became) AND (status IN ('queued', 'failed', 'cancelled', 'terminated', 'timed_out', 'skipped', 'expired', 'rejected', 'unvouched') OR lost_at IS NOT NULL)
    UNION ALL SELECT key FROM fires WHERE namespace = $1 AND status = ANY (:became) AND status IN ('claimed', 'starting', 'started') AND lost_at IS NULL LIMIT 5001)
SELECT s.key, s.project, s.workflow, d.definition, its.state, job_status(its.state, last.status, d.definition ? 'at') AS status,
       s.paused_at, s.paused_reason, s.paused_by, s.paused_until, stands.next_fire_at, s.workflow_type,
       s.definition_version, s.series, s.effective_from, d.applied_at AS defined_at, s.error, s.rules, s.origin, s.request_id,
       last.last_fire_time AS last_fire_at, last.status AS last_status,
       s.former, s.successor,
       ahead.skipped_at, ahead.skipped_why,
       CASE WHEN d.definition ? 'limit' THEN (  -- as in read_schedules.sql
           SELECT coalesce(sum(begun.windows), 0) FROM unnest(s.key || s.former) AS k (key) CROSS JOIN LATERAL (
               SELECT f.windows FROM fires f
               WHERE f.namespace = s.namespace AND f.key = k.key AND f.series = s.series AND f.kind = 'window'
                 AND f.status NOT IN ('skipped', 'expired', 'rejected') AND f.timing IS DISTINCT FROM 'backfill'
               ORDER BY f.fire_time DESC LIMIT (d.definition ->> 'limit')::int) AS begun)::int END AS started
FROM schedules s
JOIN LATERAL position_of(s.namespace, s.key) AS p ON true
-- One that waits for an answer is planned next when it looks again.
CROSS JOIN LATERAL (
    SELECT CASE WHEN p.due_at > clock_timestamp() THEN p.due_at ELSE p.next_fire_at END AS next_fire_at) AS stands
JOIN definitions d ON d.namespace = s.namespace AND d.key = s.key AND d.version = s.definition_version
CROSS JOIN LATERAL (SELECT schedule_state(s.retired_at, s.enabled, s.paused_at, stands.next_fire_at) AS state) AS its
LEFT JOIN LATERAL (
    SELECT newest.* FROM unnest(s.key || s.former) AS k (key) CROSS JOIN LATERAL (
        SELECT f.last_fire_time, f.status, f.fire_time, f.id FROM fires f
        WHERE f.namespace = s.namespace AND f.key = k.key
          -- Not counting windows skipped ahead.
          AND f.fire_time <= (SELECT clock_timestamp()) AND f.kind <> 'handler'
        ORDER BY f.fire_time DESC, f.id DESC LIMIT 1) AS newest
    ORDER BY newest.fire_time DESC, newest.id DESC LIMIT 1) AS last ON true
LEFT JOIN LATERAL (
    SELECT array_agg(f.fire_time ORDER BY f.fire_time) AS skipped_at,
           array_agg(f.reason ORDER BY f.fire_time) AS skipped_why
    FROM fires f
    WHERE f.namespace = s.namespace AND f.key = s.key AND f.series = s.series
      AND f.fire_time > p.cursor AND f.kind = 'window' AND f.status = 'skipped') AS ahead ON true
WHERE s.namespace = $1
  AND s.key = :key
  AND s.key > :after
  AND NOT starts_with(s.key, :but) AND (s.retired_at IS NULL OR NOT EXISTS (SELECT FROM projects o WHERE o.namespace = s.namespace AND o.project = s.project AND o.forgotten_at IS NOT NULL))
  AND s.key >= :prefix AND CASE WHEN starts_with(s.key, :prefix) THEN true END
  AND s.key LIKE ANY (:keys)
  AND (s.enabled AND s.retired_at IS NULL) = :enabled
  AND s.project = :project
  AND s.origin = :origin
  AND s.request_id = :request_id
  AND CASE WHEN cardinality(:became) > 0 AND (SELECT count(*) FROM became) <= 5000 THEN s.key IN (SELECT b.key FROM became b) ELSE true END
  AND CASE :held WHEN 'paused' THEN s.paused_at IS NOT NULL WHEN 'retired' THEN s.retired_at IS NOT NULL ELSE NOT s.enabled END
  AND CASE WHEN :over THEN s.retired_at IS NOT NULL OR EXISTS (SELECT FROM positions q WHERE q.namespace = $1 AND q.key = s.key AND q.next_fire_at IS NULL) END
  AND split_part(s.workflow, '@', 1) = :workflow
  AND s.workflow = :version
  AND CASE WHEN d.definition ? :kind THEN true END
  AND d.definition ? 'topic' AND d.definition ->> 'topic' = :topic
  AND d.definition ? 'tags' AND d.definition -> 'tags' ? :tag
  AND d.definition ? 'metadata' AND d.definition -> 'metadata' @> :metadata
  AND stands.next_fire_at < :due_before
  AND CASE its.state WHEN :state THEN true END
  AND CASE job_status(its.state, last.status, d.definition ? 'at') WHEN :status THEN true END
  AND CASE last.status WHEN :last_status THEN true END
ORDER BY s.key
LIMIT :limit
