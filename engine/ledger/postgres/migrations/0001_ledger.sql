-- The memory of every window. Unqualified names: the connection's search_path names the schema.

CREATE TABLE ledger (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    ledger_id   uuid NOT NULL DEFAULT gen_random_uuid(),
    epoch       bigint NOT NULL DEFAULT 1,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN ledger.ledger_id IS 'Goes into the memo of every run: a run with another id is foreign.';
COMMENT ON COLUMN ledger.epoch IS 'Counts configuration changes. A replica that sees a lower one than before has met lost commits.';
INSERT INTO ledger DEFAULT VALUES;

CREATE TABLE projects (
    namespace    text NOT NULL,
    project      text NOT NULL,
    revision     bigint,
    file_name    text NOT NULL,
    file_digest  text NOT NULL,
    applied_at   timestamptz NOT NULL,
    applied_by   text NOT NULL,
    PRIMARY KEY (namespace, project)
);

CREATE TABLE schedules (
    namespace           text NOT NULL,
    key                 text NOT NULL CHECK (key ~ '^[a-z0-9][a-z0-9._-]{0,199}$'),
    project             text NOT NULL,
    definition_version  integer NOT NULL,
    digest              text NOT NULL,
    series              integer NOT NULL CHECK (series >= 1),
    suffixed            boolean NOT NULL,
    max_bucket          bigint,
    effective_from      timestamptz NOT NULL,
    cursor              timestamptz NOT NULL,
    next_fire_at        timestamptz,
    workflow            text NOT NULL,
    workflow_type       text,
    task_queue          text NOT NULL,
    external            boolean NOT NULL,
    grace               interval NOT NULL,
    enabled             boolean NOT NULL,
    paused_at           timestamptz,
    paused_reason       text,
    retired_at          timestamptz,
    absent_since        timestamptz,
    failures            integer NOT NULL DEFAULT 0,
    error               text,
    -- Any replica may start an external workflow, the others only their own task queue's.
    lane                text NOT NULL GENERATED ALWAYS AS (CASE WHEN external THEN '' ELSE task_queue END) STORED,
    PRIMARY KEY (namespace, key)
);
COMMENT ON COLUMN schedules.cursor IS 'Every window at or before it is decided. Moves forward only.';
COMMENT ON COLUMN schedules.max_bucket IS 'The highest bucket this key ever used, over all series.';
COMMENT ON COLUMN schedules.suffixed IS 'Whether run ids of the current series end in :s<n>.';
COMMENT ON COLUMN schedules.next_fire_at IS 'A cache for the due query; NULL while nothing will fire.';
COMMENT ON COLUMN schedules.workflow_type IS 'The Temporal type the workflow resolves to; NULL until somebody announced one.';

CREATE INDEX schedules_due ON schedules (namespace, project, lane, next_fire_at)
    WHERE next_fire_at IS NOT NULL;

CREATE FUNCTION refuse_cursor_going_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the cursor of % would go back from % to %', OLD.key, OLD.cursor, NEW.cursor;
END $$;
CREATE TRIGGER cursor_moves_forward BEFORE UPDATE OF cursor ON schedules
    FOR EACH ROW WHEN (NEW.cursor < OLD.cursor) EXECUTE FUNCTION refuse_cursor_going_back();

CREATE TABLE definitions (
    namespace       text NOT NULL,
    key             text NOT NULL,
    version         integer NOT NULL CHECK (version >= 1),
    series          integer NOT NULL,
    project         text NOT NULL,
    definition      jsonb NOT NULL,
    digest          text NOT NULL,
    effective_from  timestamptz NOT NULL,
    applied_at      timestamptz NOT NULL,
    applied_by      text NOT NULL,
    PRIMARY KEY (namespace, key, version),
    FOREIGN KEY (namespace, key) REFERENCES schedules DEFERRABLE INITIALLY DEFERRED
);
COMMENT ON TABLE definitions IS 'Never updated: a fire points at the version it was decided under.';

CREATE TABLE fires (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace           text NOT NULL,
    project             text NOT NULL,
    key                 text NOT NULL,
    series              integer NOT NULL,
    bucket              bigint NOT NULL,
    fire_time           timestamptz NOT NULL,
    kind                text NOT NULL DEFAULT 'window' CHECK (kind IN ('window', 'manual', 'rerun')),
    -- A run of boring windows is one row: the first window, how many, and the last.
    windows             integer NOT NULL DEFAULT 1 CHECK (windows >= 1),
    last_fire_time      timestamptz NOT NULL,
    definition_version  integer NOT NULL,
    workflow_id         text NOT NULL,
    workflow_type       text,
    task_queue          text NOT NULL,
    run_id              text,
    status              text NOT NULL CHECK (status IN (
        'claimed', 'queued', 'starting', 'started',
        'completed', 'failed', 'cancelled', 'terminated', 'timed_out',
        'skipped', 'expired', 'rejected', 'unvouched')),
    reason              text,
    timing              text CHECK (timing IN ('on_time', 'late', 'caught_up', 'manual', 'backfill', 'rerun')),
    missed              integer NOT NULL DEFAULT 0,
    owner               text,
    token               uuid,
    lease_until         timestamptz,
    attempts            integer NOT NULL DEFAULT 0,
    decided_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    starting_at         timestamptz,
    started_at          timestamptz,
    closed_at           timestamptz,
    error               text,
    replica             text,
    seen_at             timestamptz,
    history             jsonb NOT NULL DEFAULT '[]',
    FOREIGN KEY (namespace, key, definition_version) REFERENCES definitions,
    CONSTRAINT a_range_is_never_a_run CHECK (
        windows = 1 OR status IN ('skipped', 'expired', 'rejected')),
    CONSTRAINT a_claim_has_a_lease CHECK (
        status NOT IN ('claimed', 'starting') OR (lease_until IS NOT NULL AND workflow_type IS NOT NULL)),
    CONSTRAINT starting_has_a_token CHECK (
        status <> 'starting' OR (token IS NOT NULL AND starting_at IS NOT NULL)),
    CONSTRAINT started_names_its_run CHECK (
        status NOT IN ('started', 'completed', 'failed', 'cancelled', 'terminated', 'timed_out')
        OR (run_id IS NOT NULL AND started_at IS NOT NULL))
);
COMMENT ON COLUMN fires.lease_until IS 'When a sweeper may take the fire: the end of its owner''s lease.';
COMMENT ON COLUMN fires.seen_at IS 'When the tracker looked at the open run last.';
COMMENT ON COLUMN fires.history IS 'Classes this fire had before evidence of its run changed them.';

-- The first guard: a window is decided once.
CREATE UNIQUE INDEX fires_window ON fires (namespace, key, series, fire_time) WHERE kind = 'window';
CREATE UNIQUE INDEX fires_run ON fires (namespace, workflow_id);
CREATE INDEX fires_leased ON fires (namespace, project, lease_until)
    WHERE status IN ('claimed', 'starting');
CREATE INDEX fires_open ON fires (namespace, seen_at NULLS FIRST) WHERE status = 'started';
CREATE INDEX fires_recent ON fires (namespace, fire_time DESC, id DESC);
CREATE INDEX fires_of_key ON fires (namespace, key, fire_time DESC);

CREATE TABLE replicas (
    namespace   text NOT NULL,
    replica     text NOT NULL,
    project     text NOT NULL,
    task_queue  text NOT NULL,
    types       text[] NOT NULL,
    engine      text NOT NULL,
    tzdata      text NOT NULL,
    started_at  timestamptz NOT NULL,
    seen_at     timestamptz NOT NULL,
    PRIMARY KEY (namespace, replica)
);

-- Every workflow type a replica ever announced; "newest" is the highest of these.
CREATE TABLE workflow_types (
    namespace     text NOT NULL,
    task_queue    text NOT NULL,
    type          text NOT NULL,
    announced_at  timestamptz NOT NULL,
    PRIMARY KEY (namespace, task_queue, type)
);

-- What the namespace's retention was, one row a stretch of time: a fire that was being started
-- may have run and been forgotten only after the smallest retention in force since.
CREATE TABLE retentions (
    namespace   text NOT NULL,
    retention   interval NOT NULL,
    seen_from   timestamptz NOT NULL,
    seen_until  timestamptz NOT NULL,
    PRIMARY KEY (namespace, seen_from)
);

-- Duties that one replica at a time performs. Being single only saves calls.
CREATE TABLE duties (
    namespace   text NOT NULL,
    duty        text NOT NULL,
    holder      text NOT NULL,
    expires_at  timestamptz NOT NULL,
    watermark   timestamptz,
    PRIMARY KEY (namespace, duty)
);

CREATE VIEW fire_history AS
SELECT namespace, project, key, series, bucket, fire_time, windows, last_fire_time, workflow_id,
       run_id, workflow_type, task_queue, status, reason, timing, missed, started_at, closed_at,
       CASE WHEN started_at IS NOT NULL
            THEN round(extract(epoch FROM started_at - fire_time) * 1000)::bigint END AS lag_ms,
       error, attempts, replica, definition_version, decided_at, history
-- A view of one table could be written through; of a join it cannot.
FROM fires CROSS JOIN (VALUES (true)) AS read_only (yes);
COMMENT ON VIEW fire_history IS 'Read-only and documented: what was decided for every window and what became of it.';
