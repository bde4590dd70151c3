-- beside: 10
-- A backfill starts windows by why they had no run, and not by their status alone: one that was left out by
-- the schedule, or by an operator, only where the request says so.

-- The same as engine/ledger/fire_records.py.
CREATE FUNCTION cause_of(status text, code text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN status IN ('expired', 'rejected') THEN status
                WHEN status = 'skipped' THEN coalesce(code, 'skipped') END
$$;
COMMENT ON COLUMN backfills.include IS 'Why a window had no run for it to start: see docs/operating.md.';

-- step
-- As in 0018, but for what a backfill may still start.
CREATE OR REPLACE FUNCTION awaited_of(of_fire bigint)
RETURNS TABLE (number bigint, parent text, wants text, became text, reason text, closed_at timestamptz)
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT r.number, r.rule ->> 'parent', r.rule ->> 'when',
           CASE
               WHEN p.key IS NULL THEN 'absent'
               -- Which of its windows is the latest is not known yet.
               WHEN r.rule ->> 'window' = 'latest' AND s.held IS NULL AND s.undecided THEN 'pending'
               WHEN EXISTS (
                   SELECT 1 FROM backfills b
                   WHERE b.namespace = p.namespace AND b.key = p.key AND b.state = 'laying'
                     AND b.series = p.series AND b.cursor < q.fire_time
                     AND CASE WHEN r.rule ->> 'window' = 'same'
                              THEN b.last >= q.fire_time AND (w.status IS NULL OR cause_of(w.status, w.reason_code) = ANY (b.include))
                              -- The latest is another one once something is laid behind it.
                              ELSE w.status IS NULL OR w.last_fire_time < least(b.last, q.fire_time) END
                     AND p.retired_at IS NULL AND p.enabled
                     AND (p.paused_at IS NULL OR p.paused_at <= b.requested_at)) THEN 'pending'
               WHEN w.status IN ('claimed', 'queued', 'starting') THEN 'pending'
               WHEN w.status = 'started' THEN CASE WHEN w.lost_at IS NULL THEN 'pending' ELSE 'lost' END
               WHEN w.status IS NOT NULL THEN w.status
               WHEN s.held IS NOT NULL THEN s.held
               WHEN s.undecided THEN 'pending'
               ELSE 'nothing'
           END,
           w.reason, w.closed_at
    -- By its id, and only so: what waits is otherwise looked for among all that waits in the namespace,
    -- as long as the server has not counted how much that is.
    FROM (SELECT * FROM fires f WHERE f.id = of_fire OFFSET 0) AS q
    CROSS JOIN LATERAL jsonb_array_elements(q.awaits -> 'rules') WITH ORDINALITY AS r (rule, number)
    -- Each parent by its key: the planner takes a rule for a hundred, and would join all schedules instead.
    LEFT JOIN LATERAL (
        SELECT * FROM schedules o
        WHERE o.namespace = q.namespace AND o.key = r.rule ->> 'parent' OFFSET 0) AS p ON true
    LEFT JOIN LATERAL position_of(p.namespace, p.key) AS stands ON true
    -- A schedule that is held decides its windows when it goes on, and nobody waits for that.
    LEFT JOIN LATERAL (
        SELECT CASE WHEN p.retired_at IS NOT NULL THEN 'retired'
                    WHEN NOT p.enabled THEN 'disabled'
                    WHEN p.paused_at IS NOT NULL
                         AND (p.paused_until IS NULL OR p.paused_until > q.fire_time) THEN 'paused'
               END AS held,
               -- One that backs off has put itself off.
               stands.cursor < q.fire_time
                   AND (p.failures > 0 OR coalesce(stands.next_fire_at <= q.fire_time, false))
                   AS undecided) AS s ON true
    LEFT JOIN LATERAL (
        SELECT found.* FROM (
            -- Rows of one series do not overlap, those of several hardly do: a few are enough, where
            -- all that began before would be the whole history of a parent that has not decided yet.
            -- When its end was learnt: what is seen open before, by the ledger's clock, was not in the
            -- way of what waited for it, whatever the clock of Temporal says.
            SELECT f.status, f.lost_at, f.reason,
                   coalesce(f.reason_code, reason_code_of(f.reason)) AS reason_code,
                   greatest(f.closed_at, f.seen_at) AS closed_at,
                   f.fire_time, f.last_fire_time, f.series
            FROM fires f
            WHERE f.namespace = q.namespace AND f.key = r.rule ->> 'parent'
              AND f.fire_time <= q.fire_time
              -- Not `kind = 'window'`: in the index of these the series comes before the moment, and
              -- all that the parent has had is read.
              AND coalesce(f.kind, '') = 'window'
              AND (r.rule ->> 'window' = 'same' OR f.status NOT IN ('skipped', 'expired'))
            ORDER BY f.fire_time DESC LIMIT 8) AS found
        WHERE r.rule ->> 'window' = 'latest' OR found.last_fire_time >= q.fire_time
        ORDER BY CASE WHEN r.rule ->> 'window' = 'latest' THEN found.fire_time END DESC NULLS LAST,
                 found.series DESC, found.fire_time DESC
        LIMIT 1) AS w ON true
    WHERE q.status = 'queued' AND q.awaits IS NOT NULL;
END;

-- step
-- Nobody has asked for a handler. The row says 'manual' for the workers of before, which would refuse
-- another word.
CREATE OR REPLACE VIEW fire_history AS
SELECT namespace, project, key, series, bucket, fire_time, windows, last_fire_time, workflow_id,
       run_id, workflow_type, task_queue, status, reason,
       CASE WHEN kind = 'handler' THEN 'handler' ELSE timing END AS timing, missed, started_at, closed_at,
       CASE WHEN started_at IS NOT NULL
            THEN round(extract(epoch FROM started_at - fire_time) * 1000)::bigint END AS lag_ms,
       error, attempts, replica, definition_version, decided_at, history,
       kind, missed_from, input, stop, stop_reason, lost_at, merged_at,
       coalesce(reason_code, reason_code_of(reason)) AS reason_code
FROM fires CROSS JOIN (VALUES (true)) AS read_only (yes);
