-- What operators do, what overlap does to open runs, and whole accounts of old windows.

ALTER TABLE schedules
    ADD COLUMN paused_by text,
    ADD COLUMN paused_until timestamptz,
    ADD COLUMN origin text NOT NULL DEFAULT 'file' CHECK (origin IN ('file', 'api')),
    ADD COLUMN request_id text;
COMMENT ON COLUMN schedules.paused_until IS 'The pause ends by itself then; NULL lasts until somebody resumes.';
COMMENT ON COLUMN schedules.origin IS 'Who declares it: a schedule of the API is in no file, and no file retires it.';
COMMENT ON COLUMN schedules.request_id IS 'The clientRequestId under which an application asked for it.';
CREATE UNIQUE INDEX schedules_request ON schedules (namespace, request_id) WHERE request_id IS NOT NULL;

ALTER TABLE fires
    ADD COLUMN input jsonb,
    ADD COLUMN overlap text CHECK (overlap IN (
        'allow', 'skip', 'queue', 'queue_one', 'cancel_previous', 'terminate_previous')),
    ADD COLUMN missed_from timestamptz,
    ADD COLUMN open_at timestamptz,
    ADD COLUMN lost_at timestamptz,
    ADD COLUMN stop text CHECK (stop IN ('cancel', 'terminate')),
    ADD COLUMN stop_at timestamptz,
    ADD COLUMN stop_grace interval,
    ADD COLUMN stop_reason text,
    -- Old windows become one row that still says what they became, and names no run.
    DROP CONSTRAINT a_range_is_never_a_run,
    ADD CONSTRAINT a_range_is_never_open CHECK (
        windows = 1 OR status NOT IN ('claimed', 'queued', 'starting')),
    DROP CONSTRAINT started_names_its_run,
    ADD CONSTRAINT started_names_its_run CHECK (
        status NOT IN ('started', 'completed', 'failed', 'cancelled', 'terminated', 'timed_out')
        OR windows > 1 OR (run_id IS NOT NULL AND started_at IS NOT NULL)),
    ADD CONSTRAINT a_stop_has_its_time CHECK (stop IS NULL OR stop_at IS NOT NULL);
COMMENT ON COLUMN fires.input IS 'The argument of this run alone; NULL takes that of the definition.';
COMMENT ON COLUMN fires.overlap IS 'What this fire keeps to while it is queued; NULL is the schedule''s own.';
COMMENT ON COLUMN fires.missed_from IS 'The first of the windows that a caught-up run stands for.';
COMMENT ON COLUMN fires.open_at IS 'When the run was last proven to be open.';
COMMENT ON COLUMN fires.lost_at IS 'Since when Temporal does not know the run any more, though its close was not seen.';
COMMENT ON COLUMN fires.stop IS 'What the run is to be asked next; stop_at says when, stop_grace how long a cancel may take.';

DROP INDEX fires_leased;
CREATE INDEX fires_leased ON fires (namespace, project, lease_until, id)
    WHERE status IN ('claimed', 'starting');
CREATE INDEX fires_to_stop ON fires (namespace, project, stop_at)
    WHERE stop IS NOT NULL AND status = 'started';
CREATE INDEX fires_queued ON fires (namespace, key) WHERE status = 'queued';
-- What a plan must know of a key: its open runs, and those that wait.
CREATE INDEX fires_in_the_way ON fires (namespace, key, id)
    WHERE status IN ('claimed', 'queued', 'starting', 'started') AND lost_at IS NULL;

-- Who did what, when and why. Rows are never changed.
CREATE TABLE actions (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace    text NOT NULL,
    project      text NOT NULL,
    key          text NOT NULL,
    verb         text NOT NULL,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    by           text NOT NULL,
    reason       text,
    workflow_id  text,
    before       jsonb,
    after        jsonb
);
CREATE INDEX actions_of_key ON actions (namespace, key, at DESC, id DESC);
CREATE INDEX actions_recent ON actions (namespace, at DESC, id DESC);

CREATE OR REPLACE VIEW fire_history AS
SELECT namespace, project, key, series, bucket, fire_time, windows, last_fire_time, workflow_id,
       run_id, workflow_type, task_queue, status, reason, timing, missed, started_at, closed_at,
       CASE WHEN started_at IS NOT NULL
            THEN round(extract(epoch FROM started_at - fire_time) * 1000)::bigint END AS lag_ms,
       error, attempts, replica, definition_version, decided_at, history,
       kind, missed_from, input, stop, stop_reason, lost_at
FROM fires CROSS JOIN (VALUES (true)) AS read_only (yes);
