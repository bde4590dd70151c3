-- beside: 10
-- A backfill is one row: a range of windows that ticks lay, some at a time. What an older version lays
-- at once has rows in `fires` alone, and goes on as ever.

CREATE TABLE backfills (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace           text NOT NULL,
    project             text NOT NULL,
    key                 text NOT NULL,
    series              integer NOT NULL,
    definition_version  integer NOT NULL,
    first               timestamptz NOT NULL,
    last                timestamptz NOT NULL,
    cursor              timestamptz NOT NULL,
    overlap             text NOT NULL CHECK (overlap IN ('allow', 'queue')),
    include             text[] NOT NULL,
    state               text NOT NULL DEFAULT 'laying' CHECK (state IN ('laying', 'done', 'ended')),
    ended_reason        text,
    reason              text,
    requested_by        text NOT NULL,
    requested_at        timestamptz NOT NULL,
    next_at             timestamptz NOT NULL,
    laid_at             timestamptz,
    looked_at           timestamptz,
    ended_at            timestamptz,
    windows             bigint NOT NULL,
    laid                bigint NOT NULL DEFAULT 0,
    left_alone          jsonb NOT NULL DEFAULT '{}',
    error               text,
    FOREIGN KEY (namespace, key, definition_version) REFERENCES definitions,
    CHECK (first <= last),
    CHECK (state <> 'ended' OR ended_reason IS NOT NULL)
);
COMMENT ON TABLE backfills IS 'Ranges of past windows that somebody asked for. Only ticks lay them, in order.';
COMMENT ON COLUMN backfills.definition_version IS 'Of the request: its windows are those of the range, and their runs are by it.';
COMMENT ON COLUMN backfills.cursor IS 'Every window of the range up to here was laid, or left alone for a reason that left_alone counts.';
COMMENT ON COLUMN backfills.include IS 'Windows of which classes may start, besides those without a row.';
COMMENT ON COLUMN backfills.next_at IS 'When a tick looks at it next; of several it is the turn of the earliest.';
COMMENT ON COLUMN backfills.laid_at IS 'When windows were laid last; what began since and is not here was lost with its commit.';
COMMENT ON COLUMN backfills.looked_at IS 'Up to when signs of lost commits were followed by a look at the runs of the key.';
CREATE INDEX backfills_laying ON backfills (namespace, key) WHERE state = 'laying';
CREATE INDEX backfills_of_key ON backfills (namespace, key, id);
COMMENT ON COLUMN fires.seen_at IS 'When the run was looked at last; of one that has ended, when that was learnt.';

-- step
-- The rows of many windows: which of them reach over a moment is asked for each part of a backfill,
-- and what was laid before it must not be read for that.
CREATE INDEX CONCURRENTLY fires_ranges ON fires (namespace, key, fire_time, last_fire_time) WHERE windows > 1;

-- step
-- A window that is still to be laid may become anything: `awaited` as before, with one answer more, and
-- by where its parents stand.
CREATE OR REPLACE VIEW awaited AS
SELECT q.namespace, q.key, q.id AS fire_id, r.number, r.rule ->> 'parent' AS parent,
       r.rule ->> 'when' AS wants,
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
       END AS became,
       w.reason, w.closed_at
FROM fires q
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
        -- BETWEEN, and the key in the order: it may take the index over all keys otherwise.
        WHERE f.namespace = q.namespace AND f.key BETWEEN r.rule ->> 'parent' AND r.rule ->> 'parent'
          AND f.kind = 'window' AND f.fire_time <= q.fire_time
          AND (r.rule ->> 'window' = 'same' OR f.status NOT IN ('skipped', 'expired'))
        ORDER BY f.key, f.fire_time DESC LIMIT 8) AS found
    WHERE r.rule ->> 'window' = 'latest' OR found.last_fire_time >= q.fire_time
    ORDER BY CASE WHEN r.rule ->> 'window' = 'latest' THEN found.fire_time END DESC NULLS LAST,
             found.series DESC, found.fire_time DESC
    LIMIT 1) AS w ON true
WHERE q.status = 'queued' AND q.awaits IS NOT NULL;
