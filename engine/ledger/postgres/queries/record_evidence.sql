-- Rule L2: a run that was seen overrides the status of its fire. A status without a run moves to
-- the history. A later run of the same ID (reset, continue-as-new) may reopen a fire; an older one
-- may not. The two start times come from two clocks, so a few seconds are tolerated. For an open
-- fire, Temporal's answer on which run is the last (e.last) counts more: with a clock minutes ahead
-- the fire would never be seen to close. A run that begins again after its end (reset) was
-- requested, so the earlier stop is forgotten. Locked in ID order, because two replicas that saw
-- the same runs in different orders could deadlock.
WITH locked AS (
    SELECT id FROM fires WHERE namespace = $1 AND workflow_id = ANY ($2::text[]) AND windows = 1
    ORDER BY id FOR UPDATE)
UPDATE fires f
SET status = coalesce(e.closed, 'started'),
    run_id = e.run_id,
    first_run_id = coalesce(f.first_run_id, e.first_run_id),
    started_at = coalesce(f.started_at, e.started_at),
    closed_at = e.closed_at,
    seen_at = CASE WHEN e.closed IS NULL THEN f.seen_at ELSE clock_timestamp() END,
    timing = coalesce(f.timing, 'late'),
    error = e.error,
    not_undone = e.not_undone,
    failing = NULL,
    dealt_at = NULL, followed_at = NULL,
    stop = CASE WHEN f.closed_at IS NULL OR e.closed IS NOT NULL THEN f.stop END,
    stop_at = CASE WHEN f.closed_at IS NULL OR e.closed IS NOT NULL THEN f.stop_at END,
    owner = NULL, token = NULL, lease_until = NULL, lost_at = NULL, awaits = NULL,
    reason = CASE WHEN f.status IN ('skipped', 'expired', 'rejected', 'unvouched', 'queued') THEN NULL ELSE f.reason END,
    reason_code = CASE WHEN f.status IN ('skipped', 'expired', 'rejected', 'unvouched', 'queued') THEN NULL ELSE f.reason_code END,
    history = CASE WHEN f.status IN ('skipped', 'expired', 'rejected', 'unvouched', 'queued')
                   THEN f.history || jsonb_build_object('status', f.status, 'reason', f.reason,
                                                        'reason_code', coalesce(f.reason_code, reason_code_of(f.reason)),
                                                        'error', f.error, 'until', clock_timestamp())
                   ELSE f.history END
FROM unnest($2::text[], $3::text[], $4::timestamptz[], $5::text[], $6::timestamptz[], $7::text[],
            $8::bool[], $9::jsonb[], $10::text[])
     AS e (workflow_id, run_id, started_at, closed, closed_at, error, last, not_undone, first_run_id)
WHERE f.id IN (SELECT id FROM locked)
  AND f.namespace = $1 AND f.workflow_id = e.workflow_id AND f.windows = 1
  AND (f.run_id IS NULL
       OR (f.run_id = e.run_id AND f.status = 'started' AND e.closed IS NOT NULL)
       OR (f.run_id <> e.run_id AND e.last AND f.status = 'started')
       OR (f.run_id <> e.run_id AND e.started_at >= f.started_at - CASE
           WHEN f.status = 'started' THEN interval '5 seconds' ELSE interval '0' END))
RETURNING f.workflow_id
