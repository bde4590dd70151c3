-- Windows that wait for windows of other schedules.

ALTER TABLE schedules ADD COLUMN parents text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN schedules.parents IS 'The keys that the present definition waits for.';
CREATE INDEX schedules_following ON schedules (namespace, project) WHERE parents <> '{}';

ALTER TABLE fires
    ADD COLUMN awaits jsonb,
    -- Whoever moves it on clears it: the index below stays as small as what waits.
    ADD CONSTRAINT only_what_is_queued_awaits CHECK (awaits IS NULL OR status = 'queued');
COMMENT ON COLUMN fires.awaits IS 'What a queued fire waits for, by the definition it was decided under, and its reason for when it does not any more.';
CREATE INDEX fires_awaiting ON fires (namespace, key, id) WHERE awaits IS NOT NULL;

-- What became of each window that something waits for; 'pending' may still become anything.
CREATE VIEW awaited AS
SELECT q.namespace, q.key, q.id AS fire_id, r.number, r.rule ->> 'parent' AS parent,
       r.rule ->> 'when' AS wants,
       CASE
           WHEN p.key IS NULL THEN 'absent'
           -- Which of its windows is the latest is not known yet.
           WHEN r.rule ->> 'window' = 'latest' AND s.held IS NULL AND s.undecided THEN 'pending'
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
LEFT JOIN schedules p ON p.namespace = q.namespace AND p.key = r.rule ->> 'parent'
-- A schedule that is held decides its windows when it goes on, and nobody waits for that.
LEFT JOIN LATERAL (
    SELECT CASE WHEN p.retired_at IS NOT NULL THEN 'retired'
                WHEN NOT p.enabled THEN 'disabled'
                WHEN p.paused_at IS NOT NULL
                     AND (p.paused_until IS NULL OR p.paused_until > q.fire_time) THEN 'paused'
           END AS held,
           -- One that backs off has put itself off.
           p.cursor < q.fire_time AND (p.failures > 0 OR coalesce(p.next_fire_at <= q.fire_time, false))
               AS undecided) AS s ON true
LEFT JOIN LATERAL (
    SELECT found.* FROM (
        -- Rows of one series do not overlap, those of several hardly do: a few are enough, where
        -- all that began before would be the whole history of a parent that has not decided yet.
        SELECT f.status, f.lost_at, f.reason, f.closed_at, f.fire_time, f.last_fire_time, f.series
        FROM fires f
        WHERE f.namespace = q.namespace AND f.key = r.rule ->> 'parent' AND f.kind = 'window'
          AND f.fire_time <= q.fire_time
          AND (r.rule ->> 'window' = 'same' OR f.status NOT IN ('skipped', 'expired'))
        ORDER BY f.fire_time DESC LIMIT 8) AS found
    WHERE r.rule ->> 'window' = 'latest' OR found.last_fire_time >= q.fire_time
    ORDER BY CASE WHEN r.rule ->> 'window' = 'latest' THEN found.fire_time END DESC NULLS LAST,
             found.series DESC, found.fire_time DESC
    LIMIT 1) AS w ON true
WHERE q.status = 'queued' AND q.awaits IS NOT NULL;
