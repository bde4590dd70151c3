-- beside: 10
-- What becomes of fires and schedules, for those who subscribe to it. A trigger writes each transition in
-- the transaction that makes it, whatever code does: older replicas are covered as well. Without a
-- subscription nothing is written.

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
COMMENT ON TABLE subscriptions IS 'Those who get events: webhooks, functions of workers, and readers that watch for a while.';
COMMENT ON COLUMN subscriptions.types IS 'The transitions that its patterns may match; no other is written for it.';
COMMENT ON COLUMN subscriptions.secret IS 'The name of an environment variable of the workers; never the secret.';
COMMENT ON COLUMN subscriptions.expires_at IS 'When it ends unless it is renewed; null: it stays until it is removed.';

CREATE TABLE subscription_positions (
    namespace    text NOT NULL,
    name         text NOT NULL,
    position     bigint NOT NULL,
    holder       text,
    lease_until  timestamptz,
    PRIMARY KEY (namespace, name),
    FOREIGN KEY (namespace, name) REFERENCES subscriptions ON DELETE CASCADE
);
COMMENT ON TABLE subscription_positions IS 'Where each subscription stands, apart from what it is: this changes with each turn, and the triggers read only the other. Beside an old snapshot they would visit every version of its rows.';
COMMENT ON COLUMN subscription_positions.position IS 'Every event up to here was delivered, or has a row in deliveries.';
COMMENT ON COLUMN subscription_positions.holder IS 'The replica that delivers, until lease_until.';

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
COMMENT ON TABLE events IS 'Transitions of fires and schedules, in the transaction that made them. Ids are given before commits: who reads in order reads by position.';
COMMENT ON COLUMN events.event_id IS 'Made of the run or of the change, so that the same transition has the same id even after lost commits.';
COMMENT ON COLUMN events.position IS 'The order of delivery in the namespace, given to what is committed by one session at a time.';
COMMENT ON COLUMN events.sequence IS 'The number of the event among those of its schedule, without gaps.';
CREATE INDEX events_unplaced ON events (namespace, id) WHERE position IS NULL;
CREATE UNIQUE INDEX events_placed ON events (namespace, position) WHERE position IS NOT NULL;

CREATE TABLE event_heads (
    namespace  text PRIMARY KEY,
    position   bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE event_heads IS 'The last position that was given; its row is the lock of who gives them.';

CREATE TABLE event_sequences (
    namespace  text NOT NULL,
    key        text NOT NULL,
    sequence   bigint NOT NULL,
    PRIMARY KEY (namespace, key)
);
COMMENT ON TABLE event_sequences IS 'The last sequence that an event of each schedule has got. Kept when the events leave.';

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
COMMENT ON COLUMN deliveries.due_at IS 'When it is tried next; null of a dead letter.';
CREATE INDEX deliveries_due ON deliveries (namespace, subscription, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_in_front ON deliveries (namespace, subscription, key, attempts, position)
    WHERE due_at IS NOT NULL AND attempts <= 1;
CREATE INDEX deliveries_dead ON deliveries (namespace, dead_at) WHERE dead_at IS NOT NULL;
CREATE INDEX deliveries_of_events ON deliveries (namespace, position);

-- What some subscription may want, as `namespace type`; null if there is none. One that expires while its
-- events wait leaves them behind, until they leave by their age.
CREATE FUNCTION wanted_events() RETURNS text[] LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT array_agg(DISTINCT s.namespace || ' ' || t.type)
    FROM subscriptions s CROSS JOIN LATERAL unnest(s.types) AS t (type)
    WHERE s.expires_at IS NULL OR s.expires_at > statement_timestamp();
END;

-- The same as engine/ledger/outbox.py. A run that is seen only once it has closed has arrived as well; one
-- that was reset after its end has not arrived again, and its next end is another one.
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

-- A range that is split comes in pieces that were decided before: they are no news.
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
           n.last_fire_time, n.timing, n.missed, n.reason, coalesce(n.reason_code, reason_code_of(n.reason)), n.error,
           n.started_at, n.closed_at
    FROM new_fires n CROSS JOIN LATERAL unnest(transitions_of(NULL, NULL, n.status, n.run_id)) AS t (type)
    WHERE n.status IN ('started', 'skipped', 'expired', 'rejected', 'unvouched')
      AND n.decided_at >= statement_timestamp() AND n.namespace || ' ' || t.type = ANY (wanted)
    ORDER BY n.id;
    RETURN NULL;
END $$;

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
           n.last_fire_time, n.timing, n.missed, n.reason, coalesce(n.reason_code, reason_code_of(n.reason)), n.error,
           n.started_at, n.closed_at
    FROM new_fires n JOIN old_fires o ON o.id = n.id
    CROSS JOIN LATERAL unnest(transitions_of(o.status, o.run_id, n.status, n.run_id)) WITH ORDINALITY AS t (type, nth)
    WHERE (o.status <> n.status OR o.run_id <> n.run_id) AND n.namespace || ' ' || t.type = ANY (wanted)
    ORDER BY n.id, t.nth;
    RETURN NULL;
END $$;

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
        (5, OLD.retired_at IS NULL AND NEW.retired_at IS NOT NULL, 'retired', extract(epoch FROM NEW.retired_at)::text, NULL)
    ) AS t (nth, happened, type, mark, reason)
    WHERE t.happened AND NEW.namespace || ' ' || t.type = ANY (wanted) ORDER BY t.nth;
    RETURN NULL;
END $$;

-- step
CREATE TRIGGER new_fires_are_events AFTER INSERT ON fires
    REFERENCING NEW TABLE AS new_fires FOR EACH STATEMENT EXECUTE FUNCTION write_events_of_new_fires();
CREATE TRIGGER fires_are_events AFTER UPDATE ON fires
    REFERENCING OLD TABLE AS old_fires NEW TABLE AS new_fires FOR EACH STATEMENT EXECUTE FUNCTION write_events_of_fires();

-- step
CREATE TRIGGER new_schedules_are_events AFTER INSERT ON schedules
    REFERENCING NEW TABLE AS new_schedules FOR EACH STATEMENT EXECUTE FUNCTION write_events_of_new_schedules();
-- A row of schedules is updated by ticks; hardly ever in one of these columns.
CREATE TRIGGER schedules_are_events AFTER UPDATE ON schedules FOR EACH ROW
    WHEN (NEW.key NOT LIKE '@%'
          AND (NEW.definition_version, NEW.paused_at IS NULL, NEW.retired_at IS NULL)
              IS DISTINCT FROM (OLD.definition_version, OLD.paused_at IS NULL, OLD.retired_at IS NULL))
    EXECUTE FUNCTION write_events_of_schedule();
