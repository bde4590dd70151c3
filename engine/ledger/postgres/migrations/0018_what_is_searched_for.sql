-- beside: 10
-- The planner of PostgreSQL is told what it cannot count, or counts too late: a statement of one key
-- reads rows of that key, and one of a fire that fire, whatever the ledger is full of.

-- Whoever has few fires must not be searched for among those of a busy schedule. A key is taken for an
-- average one, and where all rows that were counted are of one schedule that is the whole table: it is
-- read from end to end to find the few behind a cursor, or the last of a quiet key. A thousandth of it
-- is found in the index of the key. That holds once the server has counted anew; it is not told to,
-- because of a table that it has found empty every plan reads all.
ALTER TABLE fires ALTER COLUMN key SET (n_distinct = -0.001);

-- step
-- What became of each window that a queued fire waits for; 'pending' may still become anything.
CREATE FUNCTION awaited_of(of_fire bigint)
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
                              THEN b.last >= q.fire_time AND (w.status IS NULL OR w.status = ANY (b.include))
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
            SELECT f.status, f.lost_at, f.reason, greatest(f.closed_at, f.seen_at) AS closed_at,
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
CREATE OR REPLACE VIEW awaited AS
SELECT q.namespace, q.key, q.id AS fire_id, a.number, a.parent, a.wants, a.became, a.reason, a.closed_at
FROM fires q CROSS JOIN LATERAL awaited_of(q.id) AS a
WHERE q.status = 'queued' AND q.awaits IS NOT NULL;
