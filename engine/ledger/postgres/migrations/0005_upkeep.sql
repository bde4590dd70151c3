-- Old rows become ranges, what leaves is archived, and days are remembered for ever.

ALTER TABLE fires
    ADD COLUMN merged_at timestamptz,
    DROP CONSTRAINT started_names_its_run,
    ADD CONSTRAINT started_names_its_run CHECK (
        status NOT IN ('started', 'completed', 'failed', 'cancelled', 'terminated', 'timed_out')
        OR windows > 1 OR merged_at IS NOT NULL OR (run_id IS NOT NULL AND started_at IS NOT NULL));
COMMENT ON COLUMN fires.merged_at IS 'When old rows became this one, which names no run; a window taken out of it again keeps this.';

-- What cannot become a part of a range goes by itself.
CREATE INDEX fires_asked_for ON fires (namespace, key, fire_time) WHERE kind <> 'window';
-- Their windows belong to several days.
CREATE INDEX fires_over_days ON fires (namespace, key, fire_time)
    WHERE (fire_time AT TIME ZONE 'UTC')::date <> (last_fire_time AT TIME ZONE 'UTC')::date;

-- How far the janitor has come with each key. A table of its own: schedules are locked by ticks.
CREATE TABLE chores (
    namespace         text NOT NULL,
    key               text NOT NULL,
    summarised_until  timestamptz,
    merged_until      timestamptz,
    settled_until     timestamptz,
    forgotten_until   timestamptz,
    PRIMARY KEY (namespace, key)
);
COMMENT ON COLUMN chores.merged_until IS 'Rows before it were looked at when they were old enough to become ranges.';
COMMENT ON COLUMN chores.settled_until IS 'The same of failed ones, which keep their details longer.';
COMMENT ON COLUMN chores.forgotten_until IS 'Of a window up to here that has no row nobody can say any more whether it ran.';

-- One row per key and UTC day, for ever. Reruns do not count: their window has counted.
CREATE TABLE days (
    namespace      text NOT NULL,
    project        text NOT NULL,
    key            text NOT NULL,
    day            date NOT NULL,
    windows        bigint NOT NULL,
    runs           bigint NOT NULL,
    open           bigint NOT NULL,
    completed      bigint NOT NULL,
    failed         bigint NOT NULL,
    cancelled      bigint NOT NULL,
    terminated     bigint NOT NULL,
    timed_out      bigint NOT NULL,
    skipped        bigint NOT NULL,
    expired        bigint NOT NULL,
    rejected       bigint NOT NULL,
    unvouched      bigint NOT NULL,
    measured       bigint NOT NULL,
    lag_p50_ms     bigint,
    lag_p95_ms     bigint,
    lag_max_ms     bigint,
    final          boolean NOT NULL DEFAULT false,
    summarised_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, key, day, project)
);
COMMENT ON COLUMN days.measured IS 'Of how many runs the lag was known.';
COMMENT ON COLUMN days.final IS 'Rows of this day have left the ledger: it cannot be counted again.';
CREATE INDEX days_open ON days (namespace, key, day) WHERE open > 0 AND NOT final;

CREATE VIEW daily AS
SELECT namespace, project, key, day, windows, runs, open, completed, failed, cancelled, terminated,
       timed_out, skipped, expired, rejected, unvouched, lag_p50_ms, lag_p95_ms, lag_max_ms,
       summarised_at
FROM days CROSS JOIN (VALUES (true)) AS read_only (yes);
COMMENT ON VIEW daily IS 'Read-only and documented: what became of each key''s windows on each UTC day, kept for ever.';

CREATE OR REPLACE VIEW fire_history AS
SELECT namespace, project, key, series, bucket, fire_time, windows, last_fire_time, workflow_id,
       run_id, workflow_type, task_queue, status, reason, timing, missed, started_at, closed_at,
       CASE WHEN started_at IS NOT NULL
            THEN round(extract(epoch FROM started_at - fire_time) * 1000)::bigint END AS lag_ms,
       error, attempts, replica, definition_version, decided_at, history,
       kind, missed_from, input, stop, stop_reason, lost_at, merged_at
FROM fires CROSS JOIN (VALUES (true)) AS read_only (yes);
