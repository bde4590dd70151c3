-- The ledger: the record of every window.
--
-- Names are unqualified: a migration runs with search_path = <schema>, pg_catalog, pg_temp. The functions of
-- triggers keep that path (SET search_path FROM CURRENT), because a trigger runs in the session of whoever
-- writes, which may be an application that joins its transaction. A path that does not name pg_temp begins
-- with it: a temporary table named like one of ours would be taken for it.
--
-- Time is clock_timestamp() or, where one statement needs one time, statement_timestamp(). Never the time of
-- the transaction: one that waited for a lock began in the past.


-- --- The ledger and its projects ---

CREATE TABLE ledger (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    ledger_id   uuid NOT NULL DEFAULT gen_random_uuid(),
    epoch       bigint NOT NULL DEFAULT 1,
    system      text,
    timeline    bigint,
    doubted_at  timestamptz,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE ledger IS 'One row: which ledger this is, and signs that commits were lost.';
COMMENT ON COLUMN ledger.ledger_id IS 'In the memo of every run: a run with another ID is foreign.';
COMMENT ON COLUMN ledger.epoch IS 'Counts configuration changes. A replica that reads a lower one than before knows that commits were lost.';
COMMENT ON COLUMN ledger.system IS 'System identifier of the server that wrote last, if it is readable.';
COMMENT ON COLUMN ledger.timeline IS 'Timeline of that server. It grows whenever a standby is promoted.';
COMMENT ON COLUMN ledger.doubted_at IS 'Last sign of lost commits: windows up to then are looked up in Temporal before they are decided.';
INSERT INTO ledger DEFAULT VALUES;

CREATE TABLE bindings (
    namespace     text NOT NULL,
    number        integer NOT NULL CHECK (number >= 1),
    namespace_id  text NOT NULL,
    place         text NOT NULL,
    current       boolean NOT NULL,
    bound_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    bound_by      text NOT NULL,
    closed_at     timestamptz,
    PRIMARY KEY (namespace, number),
    UNIQUE (namespace, namespace_id)
);
COMMENT ON TABLE bindings IS 'The Temporal namespaces that the ledger belongs, or has belonged, to: the first that a worker came with, and those it was moved to.';
COMMENT ON COLUMN bindings.namespace_id IS 'Temporal''s own ID of the namespace. One that is deleted and made again under its name has another.';
COMMENT ON COLUMN bindings.place IS 'Cluster and address where it was found, for people. Neither is ever compared.';
COMMENT ON COLUMN bindings.current IS 'Whether its workers claim windows; those of others look after what they have begun.';
COMMENT ON COLUMN bindings.closed_at IS 'Since when its workers are refused; fires that were open then are unvouched or lost.';
CREATE UNIQUE INDEX bindings_current ON bindings (namespace) WHERE current;

CREATE TABLE projects (
    namespace     text NOT NULL,
    project       text NOT NULL,
    revision      bigint,
    file_name     text NOT NULL,
    file_digest   text NOT NULL,
    applied_at    timestamptz NOT NULL,
    applied_by    text NOT NULL,
    refused       text[] NOT NULL DEFAULT '{}',
    forgotten_at  timestamptz,
    PRIMARY KEY (namespace, project)
);
COMMENT ON TABLE projects IS 'The schedule file of each project that was applied last.';
COMMENT ON COLUMN projects.refused IS 'Keys of the file that were not applied. While there are any, the same file is applied again.';
COMMENT ON COLUMN projects.forgotten_at IS 'Since when lists leave out the retired schedules of the project; NULL again once one of its files is applied.';

CREATE TABLE superseded_files (
    namespace      text NOT NULL,
    project        text NOT NULL,
    file_digest    text NOT NULL,
    superseded_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, project, file_digest)
);
COMMENT ON TABLE superseded_files IS 'Files that were applied to a project and have been replaced: a worker that starts with one does not apply it.';

-- Inputs that a team's codec has encoded are stored apart from plain ones, so that no reader takes one for
-- the other.
CREATE TABLE seals (
    namespace   text NOT NULL,
    project     text NOT NULL,
    digest_key  text NOT NULL,
    sealed_by   text NOT NULL,
    sealed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, project)
);
COMMENT ON TABLE seals IS 'The projects whose inputs are sealed. Never changed.';
COMMENT ON COLUMN seals.digest_key IS 'Key of the digests of inputs, encoded by the codec, in base64.';


-- --- Schedules ---

CREATE TABLE schedules (
    namespace           text NOT NULL,
    key                 text NOT NULL CHECK (
        -- The fires of runs that applications start belong to the row @<workflow>. It fires no window, is in
        -- no project, and is on no task queue that a worker serves.
        key ~ '^([a-z0-9][a-z0-9._-]{0,199}|@[A-Za-z0-9_][A-Za-z0-9._-]{0,199})$'),
    project             text NOT NULL,
    origin              text NOT NULL DEFAULT 'file' CHECK (origin IN ('file', 'api')),
    request_id          text,
    -- The keys that it had, or the key that it has now:
    former              text[] NOT NULL DEFAULT '{}',
    successor           text CHECK (successor IS NULL OR (retired_at IS NOT NULL AND former = '{}')),
    -- What its definition says:
    definition_version  integer NOT NULL,
    digest              text NOT NULL,
    seed                text,
    series              integer NOT NULL CHECK (series >= 1),
    suffixed            boolean NOT NULL,
    effective_from      timestamptz NOT NULL,
    workflow            text NOT NULL,
    workflow_type       text,
    task_queue          text NOT NULL,
    external            boolean NOT NULL,
    -- Whether it starts nothing, in shadow mode without an end.
    shadow              boolean NOT NULL DEFAULT false,
    -- Any replica may start an external workflow, and none is needed in shadow mode; the others only workflows
    -- of their own task queue.
    lane                text NOT NULL GENERATED ALWAYS AS (CASE WHEN external OR shadow THEN '' ELSE task_queue END) STORED,
    share               text COLLATE "C" NOT NULL DEFAULT '',
    grace               interval NOT NULL,
    enabled             boolean NOT NULL,
    parents             text[] NOT NULL DEFAULT '{}',
    -- What commands say of it:
    paused_at           timestamptz,
    paused_by           text,
    paused_reason       text,
    paused_until        timestamptz,
    absent_since        timestamptz,
    retired_at          timestamptz,
    -- Where commands and applies put it. See positions for where it is.
    cursor              timestamptz NOT NULL,
    next_fire_at        timestamptz,
    max_bucket          bigint,
    rules               text COLLATE "C" NOT NULL DEFAULT '',
    cursor_reading      timestamp,
    position_step       bigint,
    -- When its plan fails:
    failures            integer NOT NULL DEFAULT 0,
    error               text,
    PRIMARY KEY (namespace, key)
);
COMMENT ON TABLE schedules IS 'One row per key, for ever. The row is the lock of the key.';
COMMENT ON COLUMN schedules.origin IS 'Who declares it: a schedule of the API is in no file, and no file retires it.';
COMMENT ON COLUMN schedules.request_id IS 'The clientRequestId under which an application requested it.';
COMMENT ON COLUMN schedules.former IS 'The keys that it had before it was renamed, the oldest first.';
COMMENT ON COLUMN schedules.successor IS 'The key under which it goes on since it was renamed; its fires up to then stay here.';
COMMENT ON COLUMN schedules.seed IS 'The first key that it had, from which its times are derived; NULL: the present one.';
COMMENT ON COLUMN schedules.suffixed IS 'Whether run IDs of the current series end in :s<n>.';
COMMENT ON COLUMN schedules.workflow_type IS 'The Temporal type of the workflow; NULL until a worker announces it.';
COMMENT ON COLUMN schedules.share IS 'Whose turn its starts take when more is due than can be started: the tenant and the workflow.';
COMMENT ON COLUMN schedules.parents IS 'The keys that the current definition waits for.';
COMMENT ON COLUMN schedules.paused_until IS 'The pause ends by itself then; NULL lasts until somebody resumes.';
COMMENT ON COLUMN schedules.cursor IS 'Every window of the series at or before it is decided. Within a series it moves forward only. May be behind positions.cursor.';
COMMENT ON COLUMN schedules.next_fire_at IS 'NULL while nothing will fire. May be behind positions.next_fire_at.';
COMMENT ON COLUMN schedules.max_bucket IS 'The highest bucket that this key ever used, over all series. May be behind positions.max_bucket.';
COMMENT ON COLUMN schedules.rules IS 'Evaluator and tzdata version that cursor and next_fire_at were computed by. '''' is older than any. A replica with older ones leaves the row alone.';
COMMENT ON COLUMN schedules.cursor_reading IS 'Of a fixed-time cron: the latest local time that it had reached at the cursor, by those rules.';
COMMENT ON COLUMN schedules.position_step IS 'The step of positions that a tick wrote here. Other writers leave it as it is, and positions follow them.';

CREATE UNIQUE INDEX schedules_request ON schedules (namespace, request_id) WHERE request_id IS NOT NULL;
-- Each share is found by one descent, however many schedules it has.
CREATE INDEX schedules_shares ON schedules (namespace, project, lane, share);
CREATE INDEX schedules_following ON schedules (namespace, project) WHERE parents <> '{}';
-- The workflow with any version, in key order.
CREATE INDEX schedules_workflow ON schedules (namespace, split_part(workflow, '@', 1), key);
-- The few schedules whose workflow no worker has announced.
CREATE INDEX schedules_unresolved ON schedules (namespace, task_queue, workflow)
    WHERE workflow_type IS NULL AND NOT external AND retired_at IS NULL;
-- The few schedules whose plan fails now.
CREATE INDEX schedules_backing_off ON schedules (namespace, key) WHERE failures > 0;

-- All keys that a schedule has had, its present one too, asked by any of them.
CREATE FUNCTION keys_of(of_namespace text, of_key text) RETURNS TABLE (key text) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT unnest(present.key || present.former)
    FROM schedules s
    JOIN schedules present ON present.namespace = s.namespace AND present.key = coalesce(s.successor, s.key)
    WHERE s.namespace = of_namespace AND s.key = of_key;
END;

CREATE FUNCTION refuse_cursor_going_back() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'the cursor of % would go back from % to %', OLD.key, OLD.cursor, NEW.cursor;
END $$;
-- A cursor belongs to the windows of one series. A new series may begin before it: newer zone rules can put
-- the cursor of a cron ahead of the clock, and the windows of a new interval are owed at once.
CREATE TRIGGER cursor_moves_forward BEFORE UPDATE OF cursor ON schedules
    FOR EACH ROW WHEN (NEW.cursor < OLD.cursor AND NEW.series = OLD.series)
    EXECUTE FUNCTION refuse_cursor_going_back();

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
COMMENT ON TABLE definitions IS 'Never updated: a fire points to the version that it was decided under.';

-- The few schedules that declare their limits, or a pause after failures.
CREATE INDEX definitions_with_alert ON definitions (namespace, key, version) WHERE definition ? 'alert';
CREATE INDEX definitions_paused_after_failures ON definitions (namespace, key, version)
    WHERE definition ? 'pauseAfterFailures';
CREATE INDEX definitions_topic ON definitions (namespace, (definition ->> 'topic'), key)
    WHERE definition ? 'topic';
-- Tags are a list in the definition.
CREATE INDEX definitions_tags ON definitions USING gin ((definition -> 'tags')) WHERE definition ? 'tags';
-- All names in metadata: owner, tenant and correlation are three of them.
CREATE INDEX definitions_metadata ON definitions USING gin ((definition -> 'metadata') jsonb_path_ops)
    WHERE definition ? 'metadata';

-- The state and the status of a schedule in lists. docs/one-shots.md has the table. Each is one expression of
-- columns, without a FROM: PostgreSQL then puts it into the statement, and a page of 500 calls no function.
CREATE FUNCTION schedule_state(retired_at timestamptz, enabled boolean, paused_at timestamptz,
                               next_fire_at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN retired_at IS NOT NULL THEN 'retired'
               WHEN NOT enabled THEN 'disabled'
               WHEN paused_at IS NOT NULL THEN 'paused'
               WHEN next_fire_at IS NOT NULL THEN 'active'
               ELSE 'ended' END $$;

CREATE FUNCTION job_status(state text, last_status text, once boolean) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN state = 'retired' AND NOT once THEN 'cancelled'
               WHEN state <> 'retired' AND last_status IN ('claimed', 'starting', 'started') THEN 'active'
               WHEN state NOT IN ('retired', 'ended') THEN 'pending'
               -- What became of the last window.
               WHEN last_status = 'completed' THEN 'completed'
               WHEN last_status IN ('failed', 'timed_out', 'expired', 'rejected', 'unvouched') THEN 'failed'
               WHEN state = 'retired' OR last_status IN ('cancelled', 'terminated', 'skipped') THEN 'cancelled'
               WHEN last_status = 'queued' THEN 'pending'
               ELSE 'completed' END $$;


-- --- Positions ---
-- Where each schedule is, apart from what it is. A row that moves is deleted and written anew under the next
-- step, never updated: beside an old snapshot no dead version can be removed, and each read of a row that was
-- updated in place would visit all of them.

CREATE TABLE positions (
    namespace       text NOT NULL,
    key             text NOT NULL,
    step            bigint NOT NULL,
    project         text NOT NULL,
    lane            text NOT NULL,
    share           text COLLATE "C" NOT NULL,
    due_at          timestamptz,
    next_fire_at    timestamptz,
    cursor          timestamptz NOT NULL,
    max_bucket      bigint,
    rules           text COLLATE "C" NOT NULL,
    cursor_reading  timestamp,
    PRIMARY KEY (namespace, key, step)
) WITH (
    -- At most a hundred thousand rows are alive, and each lives as long as one window.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);
COMMENT ON TABLE positions IS 'One row per schedule: its cursor and what moves with it. The row of schedules may be behind it, and is its lock.';
COMMENT ON COLUMN positions.step IS 'Grows with every move, so that the newest row of a key is found first.';
COMMENT ON COLUMN positions.due_at IS 'When to plan it: next_fire_at, but never earlier than the statement that wrote it. So nothing new is due long ago.';
CREATE INDEX positions_due ON positions (namespace, project, lane, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX positions_due_by_share ON positions (namespace, project, lane, share, due_at) WHERE due_at IS NOT NULL;

-- The newest row of a key. By equality alone the planner expects one row and sorts whatever it finds, dead
-- ones before all; asked in the order of the index, it takes the first.
CREATE FUNCTION position_of(of_namespace text, of_key text) RETURNS SETOF positions LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT newest.* FROM (
        SELECT p.* FROM positions p
        WHERE (p.namespace, p.key, p.step) <= (of_namespace, of_key, 9223372036854775807)
        ORDER BY p.namespace DESC, p.key DESC, p.step DESC LIMIT 1) AS newest
    WHERE newest.namespace = of_namespace AND newest.key = of_key;
END;

-- Only ticks write positions themselves. Commands, applies and operators write schedules, and these two
-- triggers follow them.
CREATE FUNCTION add_positions() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- An operator may have deleted the schedule by hand before, and left its position.
    DELETE FROM positions p USING added a WHERE p.namespace = a.namespace AND p.key = a.key;
    INSERT INTO positions (namespace, key, step, project, lane, share, due_at, next_fire_at, cursor,
                           max_bucket, rules, cursor_reading)
    SELECT a.namespace, a.key, 1, a.project, a.lane, a.share,
           CASE WHEN a.next_fire_at IS NOT NULL THEN greatest(a.next_fire_at, statement_timestamp()) END,
           a.next_fire_at, a.cursor, a.max_bucket, a.rules, a.cursor_reading
    FROM added a;
    RETURN NULL;
END $$;
CREATE TRIGGER positions_added AFTER INSERT ON schedules
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION add_positions();

-- The row of schedules may be behind: what the writer did not change stays what the position says, and within
-- a series the cursor goes back only where somebody put it back on purpose.
CREATE FUNCTION move_position() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    WITH was AS (
        DELETE FROM positions p
        WHERE p.namespace = NEW.namespace AND p.key = NEW.key
          AND p.step = (SELECT n.step FROM position_of(NEW.namespace, NEW.key) n)
        RETURNING p.*),
    merged AS (
        SELECT was.step,
               CASE WHEN leads.yes THEN NEW.cursor ELSE was.cursor END AS cursor,
               CASE WHEN leads.yes THEN NEW.cursor_reading ELSE was.cursor_reading END AS reading,
               greatest(was.max_bucket, NEW.max_bucket) AS max_bucket,
               CASE WHEN NEW.successor IS NOT NULL THEN NULL
                    WHEN NEW.next_fire_at IS DISTINCT FROM OLD.next_fire_at
                         OR (leads.yes AND NEW.cursor <> OLD.cursor)
                    THEN NEW.next_fire_at ELSE was.next_fire_at END AS next_fire_at
        FROM was CROSS JOIN LATERAL (
            SELECT NEW.series <> OLD.series OR NEW.cursor < OLD.cursor OR NEW.cursor >= was.cursor
                   AS yes) AS leads)
    INSERT INTO positions (namespace, key, step, project, lane, share, due_at, next_fire_at, cursor,
                           max_bucket, rules, cursor_reading)
    SELECT NEW.namespace, NEW.key, m.step + 1, NEW.project, NEW.lane, NEW.share,
           CASE WHEN m.next_fire_at IS NOT NULL THEN greatest(m.next_fire_at, statement_timestamp()) END,
           m.next_fire_at, m.cursor, m.max_bucket, NEW.rules, m.reading
    FROM merged m;
    RETURN NULL;
END $$;
CREATE TRIGGER position_moved AFTER UPDATE ON schedules FOR EACH ROW
    WHEN (NEW.position_step IS NOT DISTINCT FROM OLD.position_step
          AND (NEW.next_fire_at, NEW.cursor, NEW.cursor_reading, NEW.max_bucket, NEW.rules,
               NEW.project, NEW.lane, NEW.share, NEW.successor)
              IS DISTINCT FROM
              (OLD.next_fire_at, OLD.cursor, OLD.cursor_reading, OLD.max_bucket, OLD.rules,
               OLD.project, OLD.lane, OLD.share, OLD.successor))
    EXECUTE FUNCTION move_position();

-- move_cursors.sql calls it for a cursor that would go back.
CREATE FUNCTION refuse_position(key text, old timestamptz, new timestamptz) RETURNS timestamptz
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RAISE EXCEPTION 'the cursor of % would go back from % to %', key, old, new;
END $$;


-- --- Fires ---
-- A fire is a window and what became of it, or a run that somebody requested.

CREATE TABLE fires (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace           text NOT NULL,
    project             text NOT NULL,
    key                 text NOT NULL,
    -- Which window it is. A range of windows that had no run is one row: the first, how many, and the last.
    kind                text NOT NULL DEFAULT 'window' CHECK (kind IN ('window', 'manual', 'rerun', 'handler')),
    series              integer NOT NULL,
    bucket              bigint NOT NULL,
    fire_time           timestamptz NOT NULL,
    windows             integer NOT NULL DEFAULT 1 CHECK (windows >= 1),
    last_fire_time      timestamptz NOT NULL,
    missed              integer NOT NULL DEFAULT 0,
    missed_from         timestamptz,
    -- What is to run:
    definition_version  integer NOT NULL,
    workflow_id         text NOT NULL,
    workflow_type       text,
    task_queue          text NOT NULL,
    input               jsonb,
    sealed_input        jsonb,
    options             jsonb,
    data_from           timestamptz,
    overlap             text CHECK (overlap IN (
        'allow', 'skip', 'queue', 'queue_one', 'cancel_previous', 'terminate_previous')),
    awaits              jsonb,
    -- What became of it, and why:
    status              text NOT NULL CHECK (status IN (
        'claimed', 'queued', 'starting', 'started',
        'completed', 'failed', 'cancelled', 'terminated', 'timed_out',
        'skipped', 'expired', 'rejected', 'unvouched')),
    reason              text,
    reason_code         text,
    timing              text CHECK (timing IN (
        'on_time', 'late', 'caught_up', 'manual', 'backfill', 'rerun', 'handler')),
    error               text,
    history             jsonb NOT NULL DEFAULT '[]',
    decided_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    waited_since        timestamptz,
    merged_at           timestamptz,
    -- Its start:
    owner               text,
    token               uuid,
    lease_until         timestamptz,
    attempts            integer NOT NULL DEFAULT 0,
    starting_at         timestamptz,
    replica             text,
    binding             integer NOT NULL DEFAULT 1,
    -- Its run:
    run_id              text,
    first_run_id        text,
    second_runs         text[],
    started_at          timestamptz,
    open_at             timestamptz,
    seen_at             timestamptz,
    lost_at             timestamptz,
    closed_at           timestamptz,
    duration_ms         bigint,
    tries               integer,
    step_retries        integer,
    counted             text,
    tried               jsonb,
    failing             jsonb,
    failure             jsonb,
    given_up            text,
    not_undone          jsonb,
    -- How it is to be stopped:
    stop                text CHECK (stop IN ('cancel', 'terminate')),
    stop_at             timestamptz,
    stop_grace          interval,
    stop_reason         text,
    stop_asked_at       timestamptz,
    -- What was done about a bad end:
    followed_at         timestamptz,
    dealt_at            timestamptz,
    FOREIGN KEY (namespace, key, definition_version) REFERENCES definitions,
    CONSTRAINT a_range_is_never_open CHECK (
        windows = 1 OR status NOT IN ('claimed', 'queued', 'starting')),
    -- Whoever moves it on clears awaits: so the index of what waits stays small.
    CONSTRAINT only_what_is_queued_awaits CHECK (awaits IS NULL OR status = 'queued'),
    CONSTRAINT a_claim_has_a_lease CHECK (
        status NOT IN ('claimed', 'starting') OR (lease_until IS NOT NULL AND workflow_type IS NOT NULL)),
    CONSTRAINT starting_has_a_token CHECK (
        status <> 'starting' OR (token IS NOT NULL AND starting_at IS NOT NULL)),
    -- Old windows become one row that still says what became of them, and names no run.
    CONSTRAINT started_names_its_run CHECK (
        status NOT IN ('started', 'completed', 'failed', 'cancelled', 'terminated', 'timed_out')
        OR windows > 1 OR merged_at IS NOT NULL OR (run_id IS NOT NULL AND started_at IS NOT NULL)),
    CONSTRAINT a_stop_has_its_time CHECK (stop IS NULL OR stop_at IS NOT NULL)
);
COMMENT ON COLUMN fires.missed_from IS 'The first of the windows that a caught-up run stands for.';
COMMENT ON COLUMN fires.input IS 'The argument of this run alone; NULL takes that of the definition.';
COMMENT ON COLUMN fires.sealed_input IS 'The argument of this run alone, sealed; then input is NULL.';
COMMENT ON COLUMN fires.options IS 'Fields of the definition that this run has of its own, such as its priority; NULL: none.';
COMMENT ON COLUMN fires.data_from IS 'Where the data of its run begin; -infinity: no run came before it. infinity: at the window before it by the definition, since a later run has had them too. NULL until it starts, and if nobody knows.';
COMMENT ON COLUMN fires.overlap IS 'The policy that this fire keeps while it is queued; NULL is that of the schedule.';
COMMENT ON COLUMN fires.awaits IS 'What a queued fire waits for, by the definition it was decided under, and its reason for the time after.';
COMMENT ON COLUMN fires.reason_code IS 'The reason as one word of a closed list, see docs/ledger.md: sentences are for people.';
COMMENT ON COLUMN fires.history IS 'Statuses that this fire had before evidence of its run changed them.';
COMMENT ON COLUMN fires.waited_since IS 'It was decided after its grace, and is not missed: after this moment it waited for other schedules only.';
COMMENT ON COLUMN fires.merged_at IS 'When old rows became this one, which names no run; a window that is taken out of it again keeps this.';
COMMENT ON COLUMN fires.lease_until IS 'When a sweeper may take the fire: the end of its owner''s lease.';
COMMENT ON COLUMN fires.binding IS 'Number of the binding whose Temporal namespace it was sent to; without a meaning before. A handler has that of the fire it follows.';
COMMENT ON COLUMN fires.run_id IS 'The newest run of the chain that was recorded.';
COMMENT ON COLUMN fires.first_run_id IS 'The first run of the chain, once known. Whatever a run continues as, retries as or is reset to has the same one.';
COMMENT ON COLUMN fires.second_runs IS 'Runs of other chains that somebody has started under this id.';
COMMENT ON COLUMN fires.open_at IS 'When the run was last proven to be open.';
COMMENT ON COLUMN fires.seen_at IS 'When the run was last looked at; once it has ended, when that was learnt.';
COMMENT ON COLUMN fires.lost_at IS 'Since when Temporal no longer knows the run, though its close was not seen.';
COMMENT ON COLUMN fires.duration_ms IS 'From the start of the first run of the chain to the close of the last, by Temporal''s clock if it is one run.';
COMMENT ON COLUMN fires.counted IS 'Where step_retries comes from: ''reported'' by the workers; ''elsewhere'': workers that report nothing run a step of the open run; ''wanted'': to be read from Temporal''s history; ''unread'': with the reason of a bad end, which nothing follows before; ''read''. NULL: nobody has reported anything, and the run is open.';
COMMENT ON COLUMN fires.tried IS 'The tries of a closed run as they were read from its history.';
COMMENT ON COLUMN fires.failing IS 'The steps of the open run that keep failing. Without a meaning in any other row: read it in fire_history.';
COMMENT ON COLUMN fires.failure IS 'The chain of errors of a run that ended badly, the outermost first. Without a meaning for any other status.';
COMMENT ON COLUMN fires.given_up IS 'How a step ended the run: retries_exhausted or fatal.';
COMMENT ON COLUMN fires.not_undone IS 'What a run could not undo: a JSON list of step, undo and error.';
COMMENT ON COLUMN fires.stop IS 'What the run is asked next; stop_at says when, stop_grace how long a cancel may take.';
COMMENT ON COLUMN fires.stop_asked_at IS 'When the run was first asked to end; stop_grace counts from here.';
COMMENT ON COLUMN fires.followed_at IS 'When the follow-up runs of this bad end were written, or it was found that there are none.';
COMMENT ON COLUMN fires.dealt_at IS 'When somebody dealt with the failure: ran the window again, or dropped the dead letter.';

-- PostgreSQL's planner is told what it cannot count, or counts too late. A key with few fires must not be
-- looked for among those of a busy schedule. A key is taken for an average one, and if all rows that were
-- sampled are of one schedule, that is the whole table: it would be read from end to end to find the few
-- behind a cursor, or the last of a quiet key. A thousandth of it is found in the index of the key. This
-- holds once the server has analyzed the table, which is not done here: for a table that was analyzed while
-- empty, every plan reads all of it.
ALTER TABLE fires ALTER COLUMN key SET (n_distinct = -0.001);

-- The first guard: a window is decided once.
CREATE UNIQUE INDEX fires_window ON fires (namespace, key, series, fire_time) WHERE kind = 'window';
CREATE UNIQUE INDEX fires_run ON fires (namespace, workflow_id);

-- Lists. With the ID at its end the order of an index is total. Without it the planner took the index over all
-- keys for that of one, and read past a million rows of others.
CREATE INDEX fires_recent ON fires (namespace, fire_time DESC, id DESC);
CREATE INDEX fires_by_key ON fires (namespace, key, fire_time DESC, id DESC);
-- Only statuses that an ordinary run never has, so that it costs nothing here. Claimed, starting and started
-- fires are found by fires_in_the_way, and completed ones nearly everywhere.
CREATE INDEX fires_by_status ON fires (namespace, status, fire_time DESC, id DESC)
    WHERE status IN ('queued', 'failed', 'cancelled', 'terminated', 'timed_out', 'skipped',
                     'expired', 'rejected', 'unvouched') OR lost_at IS NOT NULL;
CREATE INDEX fires_by_key_and_status ON fires (namespace, key, status, fire_time DESC, id DESC)
    WHERE status IN ('queued', 'failed', 'cancelled', 'terminated', 'timed_out', 'skipped',
                     'expired', 'rejected', 'unvouched') OR lost_at IS NOT NULL;
-- The status is in between: of a million windows that were skipped for a dependency, the few that are queued
-- for one are found at once.
CREATE INDEX fires_by_reason ON fires (namespace, reason_code, status, fire_time DESC, id DESC)
    WHERE reason IS NOT NULL;
CREATE INDEX fires_by_key_and_reason ON fires (namespace, key, reason_code, status, fire_time DESC, id DESC)
    WHERE reason IS NOT NULL;

-- Plans. What a plan must know of a key: its open runs, and those that wait.
CREATE INDEX fires_in_the_way ON fires (namespace, key, id)
    WHERE status IN ('claimed', 'queued', 'starting', 'started') AND lost_at IS NULL;
CREATE INDEX fires_running ON fires (namespace, key, id)
    WHERE status IN ('claimed', 'starting', 'started') AND lost_at IS NULL;
CREATE INDEX fires_queued ON fires (namespace, key) WHERE status = 'queued';
CREATE INDEX fires_awaiting ON fires (namespace, key, id) WHERE awaits IS NOT NULL;
-- Each part of a backfill asks which rows of many windows reach over a moment; it must not read what was laid
-- before it for that.
CREATE INDEX fires_ranges ON fires (namespace, key, fire_time, last_fire_time) WHERE windows > 1;

-- Starts and stops.
CREATE INDEX fires_leased ON fires (namespace, project, lease_until, id)
    WHERE status IN ('claimed', 'starting');
CREATE INDEX fires_to_stop ON fires (namespace, project, stop_at)
    WHERE stop IS NOT NULL AND status = 'started';

-- Runs. Open ones by when they were last seen. Had those that nobody has seen yet no place in this order, they
-- would be together at its end, and beside an old snapshot all that ever began would be read for the next one.
CREATE INDEX fires_unseen ON fires (namespace, binding, (coalesce(seen_at, started_at)))
    WHERE status = 'started' AND lost_at IS NULL;
-- With the expression of fire_history, so that its readers use it. The server keeps no statistics of that, and
-- expects nearly every row to have it: by the other two conditions it knows that they are few.
CREATE INDEX fires_failing ON fires (namespace, fire_time DESC, key)
    WHERE status = 'started' AND lost_at IS NULL
      AND CASE WHEN status = 'started' AND lost_at IS NULL THEN failing END IS NOT NULL;
-- The few closed runs whose counts are still to be read.
CREATE INDEX fires_uncounted ON fires (namespace, binding, id DESC) WHERE counted = 'wanted';
CREATE INDEX fires_unread ON fires (namespace, binding, key, id DESC) WHERE counted = 'unread';

-- Bad ends. Each is followed once; a dead letter is one that nobody has dealt with.
CREATE INDEX fires_to_follow ON fires (namespace, id)
    WHERE status IN ('failed', 'timed_out', 'rejected', 'terminated')
      AND followed_at IS NULL AND merged_at IS NULL AND kind <> 'handler' AND counted IS DISTINCT FROM 'unread';
CREATE INDEX fires_dead ON fires (namespace, fire_time DESC, workflow_id)
    WHERE status IN ('failed', 'timed_out', 'rejected') AND dealt_at IS NULL AND merged_at IS NULL;

-- Retention. Requested fires cannot become a part of a range, and leave by themselves.
CREATE INDEX fires_asked_for ON fires (namespace, key, fire_time) WHERE kind <> 'window';
-- The windows of these belong to several days.
CREATE INDEX fires_over_days ON fires (namespace, key, fire_time)
    WHERE (fire_time AT TIME ZONE 'UTC')::date <> (last_fire_time AT TIME ZONE 'UTC')::date;

-- Why a window surely had no run; NULL if it had, or may have had, one. fires.py has the same function.
CREATE FUNCTION cause_of(status text, code text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN status IN ('expired', 'rejected', 'unvouched') THEN status
                WHEN status = 'skipped' THEN coalesce(code, 'skipped') END
$$;


-- --- Lines ---
-- What waits in line has a table of its own, and is counted as it comes and goes: a plan reads as many fires as
-- it can decide on, however many wait behind them.

CREATE TABLE line (
    namespace  text NOT NULL,
    key        text NOT NULL,
    pending    boolean NOT NULL,
    fire_id    bigint NOT NULL,
    PRIMARY KEY (namespace, key, pending, fire_id)
);
COMMENT ON TABLE line IS 'The queued fires of each key, in order. An index of fires would not do: to find the first of a line by ID, the planner may walk the primary key through all that has ended.';
COMMENT ON COLUMN line.pending IS 'Whether the fire waits for windows of other schedules, and not only for a place.';

CREATE TABLE line_changes (
    namespace  text NOT NULL,
    key        text NOT NULL,
    id         bigint GENERATED ALWAYS AS IDENTITY,
    waiting    integer NOT NULL,
    pending    integer NOT NULL,
    PRIMARY KEY (namespace, key, id)
);
COMMENT ON TABLE line_changes IS 'By how much the line of a key grew or shrank; the sums of its rows are the length of the line. A row per change and no counter, because a run that is seen moves its fire without the lock of its schedule; a plan folds them into one.';

CREATE FUNCTION keep_line() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP <> 'INSERT' AND OLD.status = 'queued' THEN
        DELETE FROM line l WHERE l.namespace = OLD.namespace AND l.key = OLD.key
            AND l.pending = (OLD.awaits IS NOT NULL) AND l.fire_id = OLD.id;
        INSERT INTO line_changes (namespace, key, waiting, pending)
        VALUES (OLD.namespace, OLD.key, -(OLD.awaits IS NULL)::int, -(OLD.awaits IS NOT NULL)::int);
    END IF;
    IF TG_OP <> 'DELETE' AND NEW.status = 'queued' THEN
        INSERT INTO line (namespace, key, pending, fire_id)
        VALUES (NEW.namespace, NEW.key, NEW.awaits IS NOT NULL, NEW.id);
        INSERT INTO line_changes (namespace, key, waiting, pending)
        VALUES (NEW.namespace, NEW.key, (NEW.awaits IS NULL)::int, (NEW.awaits IS NOT NULL)::int);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER joins_the_line AFTER INSERT ON fires
    FOR EACH ROW WHEN (NEW.status = 'queued') EXECUTE FUNCTION keep_line();
CREATE TRIGGER moves_in_the_line AFTER UPDATE OF status, awaits ON fires
    FOR EACH ROW
    WHEN ((OLD.status = 'queued', OLD.awaits IS NULL) <> (NEW.status = 'queued', NEW.awaits IS NULL))
    EXECUTE FUNCTION keep_line();
CREATE TRIGGER leaves_the_line AFTER DELETE ON fires
    FOR EACH ROW WHEN (OLD.status = 'queued') EXECUTE FUNCTION keep_line();


-- --- Retention ---
-- Old rows become ranges, rows that leave are archived, and days are kept for ever.

-- A table of its own, because ticks lock schedules.
CREATE TABLE chores (
    namespace         text NOT NULL,
    key               text NOT NULL,
    summarised_until  timestamptz,
    merged_until      timestamptz,
    settled_until     timestamptz,
    forgotten_until   timestamptz,
    PRIMARY KEY (namespace, key)
);
COMMENT ON TABLE chores IS 'How far the janitor has come with each key.';
COMMENT ON COLUMN chores.merged_until IS 'Rows before it were checked when they were old enough to become ranges.';
COMMENT ON COLUMN chores.settled_until IS 'The same for failed ones, which keep their details longer.';
COMMENT ON COLUMN chores.forgotten_until IS 'Whether a window up to here without a row ever ran is no longer known.';

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
COMMENT ON TABLE days IS 'One row per key and UTC day, for ever. Reruns do not count: their window has counted.';
COMMENT ON COLUMN days.measured IS 'The number of runs whose lag was known.';
COMMENT ON COLUMN days.final IS 'Rows of this day have left the ledger: it cannot be counted again.';
CREATE INDEX days_open ON days (namespace, key, day) WHERE open > 0 AND NOT final;


-- --- Data intervals ---
-- Where the data of each run begin. The runs of a key share them out: each has what came since the last window
-- before it that began, or is still to begin, whatever became of the windows between. One that begins after a
-- later run has had its data repeats only its own share, and does not count for others.

CREATE TABLE data_gaps (
    namespace   text NOT NULL,
    key         text NOT NULL,
    fire_time   timestamptz NOT NULL,
    bucket      bigint NOT NULL,
    noted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    told_at     timestamptz,
    PRIMARY KEY (namespace, key, fire_time)
);
COMMENT ON TABLE data_gaps IS 'Windows that did not run after all. If told_at is set, a later run had counted on the window, so that no run had its data then.';
CREATE INDEX data_gaps_untold ON data_gaps (namespace, noted_at) WHERE told_at IS NULL;

-- The last window before a moment that has begun, or is still to begin; a window of shadow mode had its run
-- elsewhere. The denied ones since then are walked once: the next search stops at whatever began meanwhile.
CREATE FUNCTION window_before(of_namespace text, of_keys text[], moment timestamptz)
RETURNS TABLE (fire_time timestamptz) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT least(found.last_fire_time, moment)
    FROM unnest(of_keys) AS k (key)
    CROSS JOIN LATERAL (
        SELECT f.fire_time, f.last_fire_time FROM fires f
        WHERE f.namespace = of_namespace AND f.key BETWEEN k.key AND k.key AND f.fire_time < moment
          AND (f.status NOT IN ('skipped', 'expired', 'rejected', 'unvouched') OR f.reason_code = 'shadow')
          AND f.kind IN ('window', 'rerun') AND f.data_from IS DISTINCT FROM 'infinity'
        ORDER BY f.key, f.fire_time DESC, f.id DESC LIMIT 1) AS found
    ORDER BY found.fire_time DESC LIMIT 1;
END;

-- Where the data begin of the first window after a moment that has begun; NULL if one is still to begin before
-- that. A window that came to be pending later, by a backfill or a rerun, does not count: whoever began before
-- had its data already.
CREATE FUNCTION window_after(of_namespace text, of_keys text[], moment timestamptz)
RETURNS TABLE (data_from timestamptz) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN found.status NOT IN ('claimed', 'queued') THEN found.data_from END
    FROM unnest(of_keys) AS k (key)
    CROSS JOIN LATERAL (
        SELECT f.fire_time, f.status, f.data_from FROM fires f
        WHERE f.namespace = of_namespace AND f.key BETWEEN k.key AND k.key AND f.fire_time > moment
          AND f.status NOT IN ('skipped', 'expired', 'rejected', 'unvouched') AND f.kind IN ('window', 'rerun')
          AND NOT (f.status IN ('claimed', 'queued') AND (f.kind = 'rerun' OR f.timing IS NOT DISTINCT FROM 'backfill'))
          AND f.data_from IS DISTINCT FROM 'infinity'
        ORDER BY f.key DESC, f.fire_time, f.id LIMIT 1) AS found
    ORDER BY found.fire_time LIMIT 1;
END;

-- Where the data begin of a window that begins now; NULL if nobody knows, because what has left the ledger may
-- have been a run.
CREATE FUNCTION data_from_of(of_namespace text, of_key text, moment timestamptz)
RETURNS TABLE (data_from timestamptz) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN later.data_from < moment THEN 'infinity'
                WHEN before.fire_time IS NOT NULL THEN before.fire_time
                WHEN NOT EXISTS (SELECT FROM chores c
                                 WHERE c.namespace = of_namespace AND c.key = ANY (its.keys)
                                   AND c.forgotten_until IS NOT NULL) THEN '-infinity' END
    FROM (SELECT ARRAY(SELECT k.key FROM keys_of(of_namespace, of_key) AS k) AS keys OFFSET 0) AS its
    LEFT JOIN LATERAL window_after(of_namespace, its.keys, moment) AS later ON true
    LEFT JOIN LATERAL window_before(of_namespace, its.keys, moment) AS before ON true;
END;

-- Fixed when a fire is first sent, whoever sends it. A plan that begins one window of a key does the same in
-- its statement, which costs half.
CREATE FUNCTION fix_data_from() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE its record;
BEGIN
    IF NEW.kind = 'rerun' THEN
        -- One more run of a window that had one is about the same data.
        SELECT w.data_from INTO its FROM fires w
        WHERE w.namespace = NEW.namespace AND w.key IN (SELECT k.key FROM keys_of(NEW.namespace, NEW.key) k)
          AND w.series = NEW.series AND w.fire_time = NEW.fire_time AND w.kind = 'window'
          AND w.status NOT IN ('claimed', 'queued', 'skipped', 'expired', 'rejected', 'unvouched');
        IF FOUND THEN
            NEW.data_from := its.data_from;
            RETURN NEW;
        END IF;
    END IF;
    SELECT d.data_from INTO NEW.data_from FROM data_from_of(NEW.namespace, NEW.key, NEW.fire_time) AS d;
    RETURN NEW;
END $$;
CREATE TRIGGER its_data_begin BEFORE INSERT ON fires FOR EACH ROW
    WHEN (NEW.status = 'starting' AND NEW.data_from IS NULL AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION fix_data_from();
CREATE TRIGGER its_data_begin_later BEFORE UPDATE OF status ON fires FOR EACH ROW
    WHEN (NEW.status = 'starting' AND OLD.status <> 'starting' AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION fix_data_from();

-- A later run may have counted on it. Whether one has is checked once no run can be about to. A window that was
-- reported as a gap, and whose next attempt is denied as well, stays reported: it had no run in between.
CREATE FUNCTION note_denied() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO data_gaps (namespace, key, fire_time, bucket)
    VALUES (NEW.namespace, NEW.key, NEW.fire_time, NEW.bucket)
    ON CONFLICT (namespace, key, fire_time) DO UPDATE SET noted_at = clock_timestamp();
    RETURN NULL;
END $$;
CREATE TRIGGER nobody_has_its_data AFTER UPDATE OF status ON fires FOR EACH ROW
    WHEN (OLD.status IN ('claimed', 'queued', 'starting')
          AND NEW.status IN ('skipped', 'expired', 'rejected', 'unvouched')
          AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION note_denied();


-- --- Requests ---

CREATE TABLE backfills (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace           text NOT NULL,
    project             text NOT NULL,
    key                 text NOT NULL,
    series              integer NOT NULL,
    definition_version  integer NOT NULL,
    first               timestamptz NOT NULL,
    last                timestamptz NOT NULL,
    overlap             text NOT NULL CHECK (overlap IN ('allow', 'queue')),
    include             text[] NOT NULL,
    reason              text,
    requested_by        text NOT NULL,
    requested_at        timestamptz NOT NULL,
    state               text NOT NULL DEFAULT 'laying' CHECK (state IN ('laying', 'done', 'ended')),
    cursor              timestamptz NOT NULL,
    windows             bigint NOT NULL,
    laid                bigint NOT NULL DEFAULT 0,
    left_alone          jsonb NOT NULL DEFAULT '{}',
    next_at             timestamptz NOT NULL,
    laid_at             timestamptz,
    looked_at           timestamptz,
    ended_at            timestamptz,
    ended_reason        text,
    error               text,
    FOREIGN KEY (namespace, key, definition_version) REFERENCES definitions,
    CHECK (first <= last),
    CHECK (state <> 'ended' OR ended_reason IS NOT NULL)
);
COMMENT ON TABLE backfills IS 'Requested ranges of past windows. Only ticks lay them, some at a time, in order.';
COMMENT ON COLUMN backfills.definition_version IS 'That of the request: it says which windows are in the range, and how they run.';
COMMENT ON COLUMN backfills.include IS 'Reasons for which a window had no run, so that it may start: see docs/operating.md.';
COMMENT ON COLUMN backfills.cursor IS 'Every window of the range up to here was laid, or left alone for a reason that left_alone counts.';
COMMENT ON COLUMN backfills.next_at IS 'When a tick looks at it next; of several backfills the earliest is next.';
COMMENT ON COLUMN backfills.laid_at IS 'When windows were last laid; what began since and is not here was lost with its commit.';
COMMENT ON COLUMN backfills.looked_at IS 'Up to when the runs of the key were looked up after signs of lost commits.';
CREATE INDEX backfills_laying ON backfills (namespace, key) WHERE state = 'laying';
CREATE INDEX backfills_of_key ON backfills (namespace, key, id);

CREATE TABLE starts (
    namespace     text NOT NULL,
    workflow      text NOT NULL,
    start_id      text NOT NULL,
    digest        text NOT NULL,
    requested     text NOT NULL,
    project       text NOT NULL,
    task_queue    text NOT NULL,
    requested_by  text NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, workflow, start_id)
);
COMMENT ON TABLE starts IS 'Each ID under which an application has started a workflow. Never changed, and never deleted: the same ID never starts a second run, however long ago its fire has left the ledger.';
COMMENT ON COLUMN starts.workflow IS 'The name without a version: an ID is used once for all of them.';
COMMENT ON COLUMN starts.digest IS 'SHA-256 of the input. The same ID with another input is refused.';
COMMENT ON COLUMN starts.requested IS 'The workflow as it was requested: name, or name@version.';


-- --- Windows that wait for windows of other schedules ---

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
               -- A window that a backfill is still to lay may become anything.
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
    -- By its ID, and only so: otherwise it is looked for among all that waits in the namespace, as long as the
    -- server has not counted how much that is.
    FROM (SELECT * FROM fires f WHERE f.id = of_fire OFFSET 0) AS q
    CROSS JOIN LATERAL jsonb_array_elements(q.awaits -> 'rules') WITH ORDINALITY AS r (rule, number)
    -- Each parent by its key: the planner expects a hundred rules, and would join all schedules instead.
    -- It may name a key that the parent had before.
    LEFT JOIN LATERAL (
        SELECT o.* FROM schedules n
        JOIN schedules o ON o.namespace = n.namespace AND o.key = coalesce(n.successor, n.key)
        WHERE n.namespace = q.namespace AND n.key = r.rule ->> 'parent' OFFSET 0) AS p ON true
    LEFT JOIN LATERAL position_of(p.namespace, p.key) AS stands ON true
    -- A schedule that is held decides its windows when it goes on, and nobody waits for that.
    LEFT JOIN LATERAL (
        SELECT CASE WHEN p.retired_at IS NOT NULL THEN 'retired'
                    WHEN NOT p.enabled THEN 'disabled'
                    WHEN p.paused_at IS NOT NULL
                         AND (p.paused_until IS NULL OR p.paused_until > q.fire_time) THEN 'paused'
               END AS held,
               -- A schedule that backs off has delayed its own next fire time.
               stands.cursor < q.fire_time
                   AND (p.failures > 0 OR coalesce(stands.next_fire_at <= q.fire_time, false))
                   AS undecided) AS s ON true
    LEFT JOIN LATERAL (
        SELECT found.* FROM (
            -- Rows of one series do not overlap, and those of several hardly do: a few are enough, where all
            -- that began before would be the whole history of a parent that has not decided yet.
            -- closed_at is when the end was learnt: a run that is seen open before, by the ledger's clock, was
            -- not in the way of what waited for it, whatever Temporal's clock says.
            SELECT each.* FROM unnest(p.key || p.former) AS k (key)
            CROSS JOIN LATERAL (
                SELECT f.status, f.lost_at, f.reason, f.reason_code,
                       greatest(f.closed_at, f.seen_at) AS closed_at,
                       f.fire_time, f.last_fire_time, f.series
                FROM fires f
                WHERE f.namespace = q.namespace AND f.key = k.key
                  AND f.fire_time <= q.fire_time
                  -- Not `kind = 'window'`: in the index of these the series comes before the time, and all that
                  -- the parent ever had is read.
                  AND coalesce(f.kind, '') = 'window'
                  AND (r.rule ->> 'window' = 'same' OR f.status NOT IN ('skipped', 'expired'))
                ORDER BY f.fire_time DESC LIMIT 8) AS each) AS found
        WHERE r.rule ->> 'window' = 'latest' OR found.last_fire_time >= q.fire_time
        ORDER BY CASE WHEN r.rule ->> 'window' = 'latest' THEN found.fire_time END DESC NULLS LAST,
                 found.series DESC, found.fire_time DESC
        LIMIT 1) AS w ON true
    WHERE q.status = 'queued' AND q.awaits IS NOT NULL;
END;


-- --- Workers ---

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
    heartbeat   interval NOT NULL,
    binding     integer NOT NULL,
    PRIMARY KEY (namespace, replica)
);
COMMENT ON COLUMN replicas.binding IS 'Number of the binding whose Temporal namespace it works for. Only those of the current one claim windows.';
COMMENT ON COLUMN replicas.heartbeat IS 'The time until its next announcement. Announced, because readers may have another SCHED_HEARTBEAT.';

CREATE TABLE workflow_types (
    namespace     text NOT NULL,
    task_queue    text NOT NULL,
    type          text NOT NULL,
    rules         jsonb,
    input         jsonb,
    announced_at  timestamptz NOT NULL,
    PRIMARY KEY (namespace, task_queue, type)
);
COMMENT ON TABLE workflow_types IS 'Every workflow type that a replica ever announced; "newest" is the highest of these.';
COMMENT ON COLUMN workflow_types.input IS 'Whether the type takes an input, whether it needs one, and its JSON Schema; NULL: unknown.';
COMMENT ON COLUMN workflow_types.rules IS 'Timeout and retry of a run, and whether an ended one is undone, as its class declares them, whichever replica starts it; the last announcement wins.';

CREATE TABLE retentions (
    namespace   text NOT NULL,
    binding     integer NOT NULL,
    retention   interval NOT NULL,
    seen_from   timestamptz NOT NULL,
    seen_until  timestamptz NOT NULL,
    unseen_from timestamptz,
    PRIMARY KEY (namespace, binding, seen_from)
);
COMMENT ON COLUMN retentions.unseen_from IS 'Before it no worker was seen for longer than Temporal keeps runs: none was alive after this moment. What was decided by then may have been sent since, by a ledger of which this is an old copy.';
COMMENT ON TABLE retentions IS 'The retention of each Temporal namespace over time. A fire that was being started may have run and been forgotten only after the smallest retention in force since.';

CREATE TABLE duties (
    namespace   text NOT NULL,
    duty        text NOT NULL,
    holder      text NOT NULL,
    expires_at  timestamptz NOT NULL,
    watermark   timestamptz,
    PRIMARY KEY (namespace, duty)
);
COMMENT ON TABLE duties IS 'Duties that one replica at a time performs. That it is only one saves calls, and nothing depends on it.';

CREATE TABLE polled_queues (
    namespace   text NOT NULL,
    task_queue  text NOT NULL,
    polled_at   timestamptz,
    waiting     bigint NOT NULL,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    looked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, task_queue)
);
COMMENT ON TABLE polled_queues IS 'What Temporal last said of the task queues of external schedules, whose workers are not ours and announce nothing. The tracker writes it.';
COMMENT ON COLUMN polled_queues.polled_at IS 'When a worker last polled it, by Temporal''s clock; NULL: none that Temporal remembers.';
COMMENT ON COLUMN polled_queues.waiting IS 'The approximate number of tasks of runs that wait there.';
COMMENT ON COLUMN polled_queues.since IS 'When it was first checked.';


-- --- Queues of steps ---

CREATE TABLE queues (
    namespace    text NOT NULL,
    queue        text NOT NULL CHECK (queue ~ '^[a-z0-9][a-z0-9._-]{0,199}$'),
    project      text NOT NULL,
    concurrency  integer CHECK (concurrency >= 1),
    per_key      integer CHECK (per_key >= 1),
    rate         text,
    declared_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    declared_by  text NOT NULL,
    dropped_at   timestamptz,
    PRIMARY KEY (namespace, queue)
);
COMMENT ON TABLE queues IS 'The limits of each queue of steps.';
COMMENT ON COLUMN queues.per_key IS 'How many steps of one fairness key run at once; NULL: as many as there are places.';
COMMENT ON COLUMN queues.rate IS 'As written in the file: 100/1m.';
COMMENT ON COLUMN queues.dropped_at IS 'Since when no file declares it. Its last limits stay in force.';

-- The number of a slot is below the concurrency of the queue, and no two rows have the same number: so there
-- are never more of them, however many writers there are.
CREATE TABLE queue_slots (
    namespace    text NOT NULL,
    lane         text NOT NULL,
    slot         integer NOT NULL CHECK (slot >= 0),
    queue        text NOT NULL,
    holder       text NOT NULL,
    lease_until  timestamptz NOT NULL,
    asked        bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, lane, slot)
);
COMMENT ON TABLE queue_slots IS 'One row is the right to run one step; a slot without a row is free.';
COMMENT ON COLUMN queue_slots.lane IS 'The Temporal task queue of the steps, <task queue>/<queue>; with #<fairness key> the slots of that key.';
COMMENT ON COLUMN queue_slots.asked IS 'The number of the holder''s call that last took or renewed it: a call that arrives late undoes nothing of a later one.';


-- --- Actions and alerts ---

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
COMMENT ON TABLE actions IS 'Who did what, when and why. Rows are never changed.';
CREATE INDEX actions_of_key ON actions (namespace, key, at DESC, id DESC);
CREATE INDEX actions_recent ON actions (namespace, at DESC, id DESC);
-- Failures count from the last one on.
CREATE INDEX actions_resumed ON actions (namespace, key, at DESC, id DESC) WHERE verb = 'resume';

CREATE TABLE alerts (
    namespace    text NOT NULL,
    name         text NOT NULL,
    code         text NOT NULL,
    text         text NOT NULL,
    cause        text,
    project      text,
    key          text,
    since        timestamptz NOT NULL,
    opened_at    timestamptz NOT NULL,
    resolved_at  timestamptz,
    sent         boolean NOT NULL DEFAULT false,
    attempts     integer NOT NULL DEFAULT 0,
    error        text,
    due_at       timestamptz,
    PRIMARY KEY (namespace, name)
);
COMMENT ON TABLE alerts IS 'Each problem that lasts, and those whose end is still to be reported. All workers and `sched watch` look for them, and one reports to the receiver.';
COMMENT ON COLUMN alerts.name IS 'The same in every process for as long as the problem lasts.';
COMMENT ON COLUMN alerts.sent IS 'Whether the receiver has confirmed that it is open.';
COMMENT ON COLUMN alerts.due_at IS 'When to report its present state to the receiver; NULL once that has confirmed it.';
CREATE INDEX alerts_due ON alerts (namespace, due_at) WHERE due_at IS NOT NULL;


-- --- Events ---
-- Transitions of fires and schedules, for those who subscribe to them. Triggers write each one in the
-- transaction that makes it, whoever writes. Without a subscription nothing is written.

CREATE TABLE subscriptions (
    namespace    text NOT NULL,
    name         text NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('hook', 'listener', 'reader')),
    project      text,
    origin       text NOT NULL CHECK (origin IN ('file', 'api', 'code')),
    events       text[] NOT NULL,
    keys         text[] NOT NULL,
    types        text[] NOT NULL,
    url          text,
    secret       text,
    expires_at   timestamptz,
    declared_by  text NOT NULL,
    declared_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, name)
);
COMMENT ON TABLE subscriptions IS 'Receivers of events: webhooks, functions of workers, and readers that watch for a while.';
COMMENT ON COLUMN subscriptions.types IS 'The transitions that its patterns may match; no other is written for it.';
COMMENT ON COLUMN subscriptions.secret IS 'The name of an environment variable of the workers; never the secret.';
COMMENT ON COLUMN subscriptions.expires_at IS 'When it ends unless it is renewed; NULL: it stays until it is removed.';

CREATE TABLE subscription_positions (
    namespace      text NOT NULL,
    name           text NOT NULL,
    position       bigint NOT NULL,
    holder         text,
    lease_until    timestamptz,
    failing_since  timestamptz,
    failing_error  text,
    retry_at       timestamptz,
    PRIMARY KEY (namespace, name),
    FOREIGN KEY (namespace, name) REFERENCES subscriptions ON DELETE CASCADE
);
COMMENT ON TABLE subscription_positions IS 'How far each subscription has come, apart from what it is: this changes with each turn, and the triggers read only the other. Beside an old snapshot they would visit every version of its rows.';
COMMENT ON COLUMN subscription_positions.position IS 'Every event up to here was delivered, or has a row in deliveries.';
COMMENT ON COLUMN subscription_positions.holder IS 'The replica that delivers, until lease_until.';
COMMENT ON COLUMN subscription_positions.failing_since IS 'When several events in a row had failed; it gets one at a time until it accepts one. NULL: it gets what comes.';
COMMENT ON COLUMN subscription_positions.retry_at IS 'When what failed is tried again, while failing_since is there.';

CREATE TABLE events (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace           text NOT NULL,
    project             text NOT NULL,
    key                 text NOT NULL,
    type                text NOT NULL,
    event_id            text NOT NULL,
    at                  timestamptz NOT NULL DEFAULT clock_timestamp(),
    position            bigint,
    sequence            bigint,
    definition_version  integer NOT NULL,
    workflow_id         text,
    run_id              text,
    kind                text,
    series              integer,
    bucket              bigint,
    fire_time           timestamptz,
    windows             integer,
    last_fire_time      timestamptz,
    timing              text,
    missed              integer,
    reason              text,
    reason_code         text,
    error               text,
    started_at          timestamptz,
    closed_at           timestamptz
);
COMMENT ON TABLE events IS 'Transitions of fires and schedules, in the transaction that made them. IDs are given before commits: to read in order, read by position.';
COMMENT ON COLUMN events.event_id IS 'Made of the run or of the change, so that the same transition has the same ID even after lost commits.';
COMMENT ON COLUMN events.position IS 'The order of delivery in the namespace, given to committed events by one session at a time.';
COMMENT ON COLUMN events.sequence IS 'The number of the event among those of its schedule, without gaps.';
CREATE INDEX events_unplaced ON events (namespace, id) WHERE position IS NULL;
CREATE UNIQUE INDEX events_placed ON events (namespace, position) WHERE position IS NOT NULL;

CREATE TABLE event_heads (
    namespace  text PRIMARY KEY,
    position   bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE event_heads IS 'The last position that was given; its row is the lock of the session that gives them.';

CREATE TABLE event_sequences (
    namespace  text NOT NULL,
    key        text NOT NULL,
    sequence   bigint NOT NULL,
    PRIMARY KEY (namespace, key)
);
COMMENT ON TABLE event_sequences IS 'The last sequence number of each schedule''s events. Kept when the events leave.';

CREATE TABLE deliveries (
    namespace     text NOT NULL,
    subscription  text NOT NULL,
    position      bigint NOT NULL,
    name          text NOT NULL,
    key           text NOT NULL,
    attempts      integer NOT NULL,
    first_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at        timestamptz,
    error         text,
    dead_at       timestamptz,
    PRIMARY KEY (namespace, subscription, position, name),
    FOREIGN KEY (namespace, subscription) REFERENCES subscriptions (namespace, name) ON DELETE CASCADE
);
COMMENT ON TABLE deliveries IS 'Events that a subscription has passed without success: to be tried again, to be tried after an earlier one of their schedule, or dead.';
COMMENT ON COLUMN deliveries.due_at IS 'When it is tried next; NULL of a dead letter.';
CREATE INDEX deliveries_due ON deliveries (namespace, subscription, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_in_front ON deliveries (namespace, subscription, key, attempts, position)
    WHERE due_at IS NOT NULL AND attempts <= 1;
CREATE INDEX deliveries_dead ON deliveries (namespace, dead_at) WHERE dead_at IS NOT NULL;
CREATE INDEX deliveries_of_events ON deliveries (namespace, position);

-- What some subscription may want, as `namespace type`; NULL if there is none. If a subscription expires while
-- its events wait, these stay until they leave by their age.
CREATE FUNCTION wanted_events() RETURNS text[] LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT array_agg(DISTINCT s.namespace || ' ' || t.type)
    FROM subscriptions s CROSS JOIN LATERAL unnest(s.types) AS t (type)
    WHERE s.expires_at IS NULL OR s.expires_at > statement_timestamp();
END;

-- A run that is seen only once it has closed has arrived as well; one that was reset after its end has not
-- arrived again, and its next end is another one.
CREATE FUNCTION transitions_of(was text, was_run text, now_is text, now_run text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN now_is IN ('completed', 'failed', 'cancelled', 'terminated', 'timed_out') THEN CASE
            WHEN was IN ('completed', 'failed', 'cancelled', 'terminated', 'timed_out')
                THEN CASE WHEN was <> now_is OR was_run <> now_run THEN ARRAY[now_is] END
            WHEN was = 'started' THEN ARRAY[now_is]
            ELSE ARRAY['arrived', now_is] END
        WHEN now_is = 'started' AND (was IS NULL OR was NOT IN (
            'started', 'completed', 'failed', 'cancelled', 'terminated', 'timed_out')) THEN ARRAY['arrived']
        WHEN now_is IN ('skipped', 'expired', 'rejected', 'unvouched') AND was IS DISTINCT FROM now_is
            THEN ARRAY[now_is] END
$$;

-- When a range is split, its pieces were decided before: they are no news.
CREATE FUNCTION write_events_of_new_fires() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE wanted text[] := wanted_events();
BEGIN
    IF wanted IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO events (namespace, project, key, type, event_id, definition_version, workflow_id, run_id, kind, series,
                        bucket, fire_time, windows, last_fire_time, timing, missed, reason, reason_code, error,
                        started_at, closed_at)
    SELECT n.namespace, n.project, n.key, t.type,
           concat_ws(':', n.workflow_id, t.type, CASE WHEN t.type = 'arrived' THEN coalesce(n.first_run_id, n.run_id) END),
           n.definition_version, n.workflow_id, n.run_id, n.kind, n.series, n.bucket, n.fire_time, n.windows,
           n.last_fire_time, n.timing, n.missed, n.reason, n.reason_code, n.error, n.started_at, n.closed_at
    FROM new_fires n CROSS JOIN LATERAL unnest(transitions_of(NULL, NULL, n.status, n.run_id)) AS t (type)
    WHERE n.status IN ('started', 'skipped', 'expired', 'rejected', 'unvouched')
      AND n.decided_at >= statement_timestamp() AND n.namespace || ' ' || t.type = ANY (wanted)
    ORDER BY n.id;
    RETURN NULL;
END $$;
CREATE TRIGGER new_fires_are_events AFTER INSERT ON fires
    REFERENCING NEW TABLE AS new_fires FOR EACH STATEMENT EXECUTE FUNCTION write_events_of_new_fires();

CREATE FUNCTION write_events_of_fires() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE wanted text[] := wanted_events();
BEGIN
    IF wanted IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO events (namespace, project, key, type, event_id, definition_version, workflow_id, run_id, kind, series,
                        bucket, fire_time, windows, last_fire_time, timing, missed, reason, reason_code, error,
                        started_at, closed_at)
    SELECT n.namespace, n.project, n.key, t.type,
           concat_ws(':', n.workflow_id, t.type,
                     CASE WHEN t.type = 'arrived' THEN coalesce(n.first_run_id, n.run_id)
                          WHEN n.run_id IS NOT NULL THEN n.run_id
                          ELSE nullif(jsonb_array_length(n.history), 0)::text END),
           n.definition_version, n.workflow_id, n.run_id, n.kind, n.series, n.bucket, n.fire_time, n.windows,
           n.last_fire_time, n.timing, n.missed, n.reason, n.reason_code, n.error, n.started_at, n.closed_at
    FROM new_fires n JOIN old_fires o ON o.id = n.id
    -- Of a bad end the event has the reason: while that is unread, it is as if the run were open.
    CROSS JOIN LATERAL (SELECT CASE WHEN o.counted = 'unread' THEN 'started' ELSE o.status END AS was,
                               CASE WHEN n.counted = 'unread' THEN 'started' ELSE n.status END AS now_is) AS known
    CROSS JOIN LATERAL unnest(transitions_of(known.was, o.run_id, known.now_is, n.run_id))
               WITH ORDINALITY AS t (type, nth)
    WHERE (known.was <> known.now_is OR o.run_id <> n.run_id) AND n.namespace || ' ' || t.type = ANY (wanted)
    ORDER BY n.id, t.nth;
    RETURN NULL;
END $$;
CREATE TRIGGER fires_are_events AFTER UPDATE ON fires
    REFERENCING OLD TABLE AS old_fires NEW TABLE AS new_fires FOR EACH STATEMENT EXECUTE FUNCTION write_events_of_fires();

-- The rows of starts by applications, @<workflow>, are no schedules.
CREATE FUNCTION write_events_of_new_schedules() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE wanted text[] := wanted_events();
BEGIN
    IF wanted IS NULL THEN
        RETURN NULL;
    END IF;
    INSERT INTO events (namespace, project, key, type, event_id, definition_version)
    SELECT n.namespace, n.project, n.key, 'created', concat_ws(':', n.key, 'created', n.definition_version),
           n.definition_version
    FROM new_schedules n
    WHERE n.key NOT LIKE '@%' AND n.namespace || ' created' = ANY (wanted)
    ORDER BY n.key;
    RETURN NULL;
END $$;
CREATE TRIGGER new_schedules_are_events AFTER INSERT ON schedules
    REFERENCING NEW TABLE AS new_schedules FOR EACH STATEMENT EXECUTE FUNCTION write_events_of_new_schedules();

CREATE FUNCTION write_events_of_schedule() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    returned boolean := OLD.retired_at IS NOT NULL AND NEW.retired_at IS NULL;
    wanted text[] := wanted_events();
BEGIN
    INSERT INTO events (namespace, project, key, type, event_id, definition_version, reason)
    SELECT NEW.namespace, NEW.project, NEW.key, t.type, concat_ws(':', NEW.key, t.type, t.mark), NEW.definition_version, t.reason
    FROM (VALUES
        (1, returned, 'created', NEW.definition_version::text, NULL),
        (2, NOT returned AND NEW.definition_version <> OLD.definition_version, 'changed', NEW.definition_version::text, NULL),
        (3, NOT returned AND OLD.paused_at IS NULL AND NEW.paused_at IS NOT NULL, 'paused',
         extract(epoch FROM NEW.paused_at)::text, NEW.paused_reason),
        (4, NOT returned AND OLD.paused_at IS NOT NULL AND NEW.paused_at IS NULL, 'resumed',
         extract(epoch FROM OLD.paused_at)::text, NULL),
        (5, OLD.retired_at IS NULL AND NEW.retired_at IS NOT NULL, 'retired', extract(epoch FROM NEW.retired_at)::text,
         'renamed to ' || NEW.successor)
    ) AS t (nth, happened, type, mark, reason)
    WHERE t.happened AND NEW.namespace || ' ' || t.type = ANY (wanted) ORDER BY t.nth;
    RETURN NULL;
END $$;
-- Ticks update rows of schedules too; hardly ever one of these columns.
CREATE TRIGGER schedules_are_events AFTER UPDATE ON schedules FOR EACH ROW
    WHEN (NEW.key NOT LIKE '@%'
          AND (NEW.definition_version, NEW.paused_at IS NULL, NEW.retired_at IS NULL)
              IS DISTINCT FROM (OLD.definition_version, OLD.paused_at IS NULL, OLD.retired_at IS NULL))
    EXECUTE FUNCTION write_events_of_schedule();


-- --- The API ---

CREATE TABLE api_tokens (
    namespace   text NOT NULL,
    id          text NOT NULL,
    name        text NOT NULL,
    scope       text NOT NULL CHECK (scope IN ('read', 'operate', 'admin')),
    keys        text[] NOT NULL CHECK (cardinality(keys) > 0),
    projects    text[] NOT NULL CHECK (cardinality(projects) > 0),
    task_queues text[] NOT NULL CHECK (cardinality(task_queues) > 0),
    external    text[] NOT NULL,
    digest      text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by  text NOT NULL,
    expires_at  timestamptz,
    revoked_at  timestamptz,
    revoked_by  text,
    used_at     timestamptz,
    used_from   text,
    PRIMARY KEY (namespace, id)
);
COMMENT ON TABLE api_tokens IS 'Tokens of the API, including revoked ones. The secret itself is stored nowhere.';
COMMENT ON COLUMN api_tokens.keys IS 'The schedules that it is for: whole keys, with * for any text and ? for one character.';
COMMENT ON COLUMN api_tokens.projects IS 'Patterns of the projects in which it may declare schedules.';
COMMENT ON COLUMN api_tokens.task_queues IS 'Patterns of the task queues that these may name.';
COMMENT ON COLUMN api_tokens.external IS 'Patterns of the Temporal types that these may start with external: true.';
COMMENT ON COLUMN api_tokens.digest IS 'SHA-256 of the whole token, in hex.';
CREATE UNIQUE INDEX api_tokens_by_name ON api_tokens (namespace, name) WHERE revoked_at IS NULL;

CREATE TABLE api_sessions (
    namespace     text NOT NULL,
    digest        text NOT NULL,
    token         text NOT NULL,
    token_digest  text NOT NULL,
    begun_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, digest)
);
COMMENT ON TABLE api_sessions IS 'Sign-ins of browsers to the page, of the last 30 days. A sign-out deletes the row.';
COMMENT ON COLUMN api_sessions.digest IS 'SHA-256 of the cookie, in hex.';
COMMENT ON COLUMN api_sessions.token IS 'The token that signed in: its id, or the name of one that a process has by itself.';
CREATE INDEX api_sessions_by_age ON api_sessions (namespace, begun_at);

CREATE TABLE api_requests (
    namespace      text NOT NULL,
    caller         text NOT NULL,
    route          text NOT NULL,
    key            text NOT NULL,
    digest         text NOT NULL,
    claim          uuid NOT NULL,
    claimed_until  timestamptz NOT NULL,
    first_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts       integer NOT NULL DEFAULT 1,
    answer         text,
    PRIMARY KEY (namespace, caller, route, key)
);
COMMENT ON TABLE api_requests IS 'Requests with an Idempotency-Key of the last 24 hours, and their answers.';
COMMENT ON COLUMN api_requests.digest IS 'Keyed digest of path, query and body; the key is the secret of the caller''s token.';
COMMENT ON COLUMN api_requests.answer IS 'The answer; NULL while the request is in work, or if its end is not known.';
CREATE INDEX api_requests_by_age ON api_requests (namespace, first_at);


-- --- Views for users ---
-- Documented in docs/ledger.md. They call no function of this schema: a view runs functions with the rights of
-- its reader, who needs nothing but SELECT on it. A view of one table could be written through; a join cannot.

CREATE VIEW fire_history AS
SELECT namespace, project, key, series, bucket, fire_time, windows, last_fire_time, kind, missed, missed_from,
       definition_version, workflow_id, workflow_type, task_queue, input, sealed_input,
       status, reason, reason_code, timing, error, history, decided_at, waited_since, merged_at,
       attempts, starting_at, replica, run_id, started_at,
       CASE WHEN started_at IS NOT NULL
            THEN round(extract(epoch FROM started_at - fire_time) * 1000)::bigint END AS lag_ms,
       lost_at, closed_at,
       -- A column that its status gives no meaning may still have a value.
       CASE WHEN closed_at IS NOT NULL THEN duration_ms END AS duration_ms,
       CASE WHEN closed_at IS NOT NULL THEN tries END AS tries,
       CASE WHEN counted IN ('reported', 'read') THEN step_retries END AS step_retries,
       CASE WHEN closed_at IS NOT NULL THEN tried END AS tried,
       CASE WHEN status = 'started' AND lost_at IS NULL THEN failing END AS failing,
       CASE WHEN status IN ('failed', 'timed_out', 'terminated') THEN failure END AS failure,
       stop, stop_reason, second_runs
FROM fires CROSS JOIN (VALUES (true)) AS read_only (yes);
COMMENT ON VIEW fire_history IS 'Read-only and documented: what was decided for every window, and what became of it.';

-- The columns of a fire that the engine reads: those of its records, and none that may be large. Never replaced:
-- prepared statements of a running fleet expect these columns, and one in a transaction is not prepared again.
CREATE VIEW fire_rows AS
SELECT namespace, project, key, series, bucket, fire_time, windows, last_fire_time, kind, missed, missed_from,
       definition_version, workflow_id, status, reason, reason_code, timing, error, history, decided_at, waited_since,
       attempts, starting_at, replica, run_id, started_at, lag_ms, lost_at, closed_at, duration_ms, tries, step_retries,
       failing, second_runs
FROM fire_history;

CREATE VIEW dead_letters AS
SELECT f.namespace, f.project, f.key, f.series, f.bucket, f.fire_time, f.windows, f.last_fire_time, f.kind,
       f.definition_version, f.workflow_id, f.workflow_type, f.task_queue,
       CASE WHEN f.sealed_input IS NULL THEN coalesce(f.input, d.definition -> 'input') END AS input,
       coalesce(f.sealed_input, CASE WHEN f.input IS NULL THEN d.definition -> 'sealedInput' END) AS sealed_input,
       f.status, CASE WHEN f.status = 'failed' THEN coalesce(f.given_up, 'failed') ELSE f.status END AS cause,
       f.reason, f.error, f.failure, f.not_undone,
       f.attempts, f.starting_at, f.run_id, f.started_at, coalesce(f.closed_at, f.decided_at) AS died_at,
       CASE WHEN f.closed_at IS NOT NULL THEN f.duration_ms END AS duration_ms, f.tries,
       CASE WHEN f.counted IN ('reported', 'read') THEN f.step_retries END AS step_retries, f.tried
FROM fires f
JOIN definitions d ON d.namespace = f.namespace AND d.key = f.key AND d.version = f.definition_version
WHERE f.status IN ('failed', 'timed_out', 'rejected') AND f.dealt_at IS NULL AND f.merged_at IS NULL;
COMMENT ON VIEW dead_letters IS 'Read-only and documented: what ended badly and nobody has dealt with.';

-- As in overdue.sql and in the causes of the watch, as far as the database knows them: it does not know whether
-- Temporal answers.
CREATE VIEW overdue AS
WITH alive AS (
    SELECT r.namespace, r.project, r.task_queue, r.types FROM replicas r
    -- Two and a half heartbeats, as in conditions.py.
    WHERE r.seen_at >= clock_timestamp() - r.heartbeat * 2.5
      AND NOT EXISTS (SELECT FROM bindings b
                      WHERE b.namespace = r.namespace AND b.current AND b.number <> r.binding)
), late AS (
    SELECT p.namespace, p.key, p.next_fire_at AS fire_time, NULL::text AS status, NULL::text AS answer
    FROM positions p JOIN schedules s ON s.namespace = p.namespace AND s.key = p.key
    WHERE p.due_at <= clock_timestamp() AND p.next_fire_at < clock_timestamp() - s.grace
      AND s.failures = 0 AND s.retired_at IS NULL AND s.paused_at IS NULL AND s.enabled
    UNION ALL
    -- Its plan fails, so that it has no next fire time.
    SELECT s.namespace, s.key, NULL, NULL, NULL FROM schedules s
    WHERE s.failures > 0 AND s.retired_at IS NULL AND s.paused_at IS NULL
    UNION ALL
    SELECT f.namespace, f.key, f.fire_time, f.status, f.error
    FROM fires f JOIN schedules s ON s.namespace = f.namespace AND s.key = f.key
    WHERE f.status IN ('claimed', 'starting') AND f.timing IS DISTINCT FROM 'backfill' AND f.kind <> 'handler'
      AND CASE WHEN f.status = 'starting' THEN f.starting_at ELSE f.lease_until END < clock_timestamp() - s.grace)
SELECT s.namespace, s.project, s.key, late.fire_time, clock_timestamp() - late.fire_time AS late,
       CASE
           WHEN there.workers = 0 THEN 'no_replica'
           WHEN s.lane <> '' AND there.on_queue = 0 THEN 'task_queue_unserved'
           WHEN s.failures > 0 THEN 'plan_failed'
           WHEN late.status IS NOT NULL THEN 'no_answer'
           WHEN s.lane <> '' AND there.able = 0 THEN 'workflow_unknown'
           ELSE 'undecided'
       END AS cause,
       coalesce(late.answer, s.error) AS error, s.workflow, s.task_queue
FROM late
JOIN schedules s ON s.namespace = late.namespace AND s.key = late.key
CROSS JOIN LATERAL (
    SELECT count(*) AS workers, count(*) FILTER (WHERE a.task_queue = s.task_queue) AS on_queue,
           count(*) FILTER (WHERE a.task_queue = s.task_queue AND s.workflow_type = ANY (a.types)) AS able
    FROM alive a WHERE a.namespace = s.namespace AND a.project = s.project) AS there;
COMMENT ON VIEW overdue IS 'Read-only and documented: windows past their grace that are neither started nor decided otherwise, and the probable cause.';

CREATE VIEW daily AS
SELECT namespace, project, key, day, windows, runs, open, completed, failed, cancelled, terminated,
       timed_out, skipped, expired, rejected, unvouched, lag_p50_ms, lag_p95_ms, lag_max_ms,
       summarised_at
FROM days CROSS JOIN (VALUES (true)) AS read_only (yes);
COMMENT ON VIEW daily IS 'Read-only and documented: what became of each key''s windows on each UTC day, kept for ever.';
