-- Rule L2: a run that was seen overrides the status of its fire. A status without a run moves to
-- the history. A later run of the same ID (reset, continue-as-new) may reopen a fire; an older one
-- may not. The two start times come from two clocks, so a few seconds are tolerated. For an open
-- fire, Temporal's answer on which run is the last (e.last) counts more: with a clock minutes ahead
-- the fire would never be seen to close. A run that begins again after its end (reset) was
-- requested, so the earlier stop is forgotten. Locked in ID order, because two replicas that saw
-- the same runs in different orders could deadlock. A run of another chain changes nothing: somebody
-- has started it under the id of a window that had its run.
--
-- The first run of a chain is its first try. What neither this nor the workers say of a closed run is read
-- from its history later, see note_failures.sql and note_counts.sql. The duration of one run is by Temporal's
-- clock alone.
WITH locked AS (
    SELECT id, workflow_id, first_run_id FROM fires
    WHERE namespace = $1 AND workflow_id = ANY (:workflow_id::text[]) AND windows = 1
    ORDER BY id FOR UPDATE
), evidence AS (
    SELECT locked.id, seen.*, seen.run_id = coalesce(locked.first_run_id, seen.first_run_id) AS is_first
    FROM unnest(:workflow_id::text[], :run_id::text[], :started_at::timestamptz[], :closed::text[],
                :closed_at::timestamptz[], :error::text[], :last::bool[], :first_run_id::text[], :unread::bool[])
         AS seen (workflow_id, run_id, started_at, closed, closed_at, error, last, first_run_id, unread)
    JOIN locked USING (workflow_id))
UPDATE fires f
SET status = coalesce(e.closed, 'started'),
    binding = $2, run_id = e.run_id,
    first_run_id = coalesce(f.first_run_id, e.first_run_id),
    started_at = coalesce(f.started_at, e.started_at),
    closed_at = e.closed_at,
    seen_at = CASE WHEN e.closed IS NULL THEN f.seen_at ELSE clock_timestamp() END,
    timing = coalesce(f.timing, 'late'),
    error = e.error,
    failing = NULL, failure = NULL, not_undone = NULL, given_up = NULL, tried = NULL,
    duration_ms = CASE WHEN e.closed_at IS NOT NULL THEN greatest(0, round(1000 * extract(epoch FROM
        e.closed_at - CASE WHEN e.is_first THEN e.started_at ELSE coalesce(f.started_at, e.started_at) END))) END,
    tries = CASE WHEN e.closed IS NOT NULL AND e.is_first THEN 1 END,
    counted = CASE WHEN e.unread THEN 'unread'
                   WHEN e.closed IS NULL AND f.counted IN ('reported', 'elsewhere') THEN f.counted
                   WHEN f.counted = 'reported' AND e.is_first THEN 'reported'
                   WHEN e.closed IS NOT NULL THEN 'wanted' END,
    dealt_at = NULL, followed_at = NULL,
    stop = CASE WHEN f.closed_at IS NULL OR e.closed IS NOT NULL THEN f.stop END,
    stop_at = CASE WHEN f.closed_at IS NULL OR e.closed IS NOT NULL THEN f.stop_at END,
    owner = NULL, token = NULL, lease_until = NULL, lost_at = NULL, awaits = NULL,
    reason = CASE WHEN f.status IN ('skipped', 'expired', 'rejected', 'unvouched', 'queued') THEN NULL ELSE f.reason END,
    reason_code = CASE WHEN f.status IN ('skipped', 'expired', 'rejected', 'unvouched', 'queued') THEN NULL ELSE f.reason_code END,
    history = CASE WHEN f.status IN ('skipped', 'expired', 'rejected', 'unvouched', 'queued')
                   THEN f.history || jsonb_build_object('status', f.status, 'reason', f.reason,
                                                        'reason_code', f.reason_code,
                                                        'error', f.error, 'until', clock_timestamp())
                   ELSE f.history END
FROM evidence e
WHERE f.id = e.id AND f.windows = 1
  AND (f.first_run_id IS NULL OR e.run_id IN (f.first_run_id, f.run_id) OR e.first_run_id = f.first_run_id)
  AND (f.run_id IS NULL
       OR (f.run_id = e.run_id AND f.status = 'started' AND e.closed IS NOT NULL)
       OR (f.run_id <> e.run_id AND e.last AND f.status = 'started')
       OR (f.run_id <> e.run_id AND e.started_at >= f.started_at - CASE
           WHEN f.status = 'started' THEN interval '5 seconds' ELSE interval '0' END))
RETURNING f.workflow_id
