-- beside: 10
-- Where each schedule stands, apart from what it is. A row that moves is deleted and written anew under
-- the next step, never updated: beside an old snapshot no dead version can be removed, and each look
-- at a row that was updated in place would visit all of them.

CREATE TABLE positions (
    namespace       text NOT NULL,
    key             text NOT NULL,
    step            bigint NOT NULL,
    project         text NOT NULL,
    lane            text NOT NULL,
    due_at          timestamptz,
    next_fire_at    timestamptz,
    cursor          timestamptz NOT NULL,
    max_bucket      bigint,
    rules           text COLLATE "C" NOT NULL,
    cursor_reading  timestamp,
    behind_since    timestamptz,
    PRIMARY KEY (namespace, key, step)
) WITH (
    -- A hundred thousand rows at most are alive, and each lives as long as one window.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_threshold = -1, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000);
COMMENT ON TABLE positions IS 'One row per schedule: its cursor and what moves with it. The row of schedules may be behind it, and is its lock.';
COMMENT ON COLUMN positions.step IS 'Grows with every move, so that the newest row of a key is found first.';
COMMENT ON COLUMN positions.due_at IS 'When to look: next_fire_at, and never earlier than it was written. So nothing new is due long ago.';
COMMENT ON COLUMN positions.behind_since IS 'Since when the row of schedules lacks what is here; NULL while it does not.';
CREATE INDEX positions_due ON positions (namespace, project, lane, due_at) WHERE due_at IS NOT NULL;

-- The newest row of a key. By equality alone the planner expects one row and sorts whatever it finds,
-- dead ones before all; asked for in the order of the index, it takes the first.
CREATE FUNCTION position_of(of_namespace text, of_key text) RETURNS SETOF positions LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT newest.* FROM (
        SELECT p.* FROM positions p
        WHERE (p.namespace, p.key, p.step) <= (of_namespace, of_key, 9223372036854775807)
        ORDER BY p.namespace DESC, p.key DESC, p.step DESC LIMIT 1) AS newest
    WHERE newest.namespace = of_namespace AND newest.key = of_key;
END;

-- step
ALTER TABLE schedules ADD COLUMN position_step bigint;
COMMENT ON COLUMN schedules.position_step IS 'Of positions, when a tick wrote that here. Whoever else writes leaves it, and is followed by positions.';

-- step
ALTER TABLE replicas ADD COLUMN schema_version integer;
COMMENT ON COLUMN replicas.schema_version IS 'The newest migration that the replica knows; NULL of one that says nothing, and reads no positions.';

-- Whoever writes to schedules without knowing of positions is followed here: verbs, an apply, and
-- replicas of before this migration.
CREATE FUNCTION add_positions() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM positions p USING added a WHERE p.namespace = a.namespace AND p.key = a.key;
    INSERT INTO positions (namespace, key, step, project, lane, due_at, next_fire_at, cursor,
                           max_bucket, rules, cursor_reading)
    SELECT a.namespace, a.key, 1, a.project, a.lane,
           CASE WHEN a.next_fire_at IS NOT NULL THEN greatest(a.next_fire_at, statement_timestamp()) END,
           a.next_fire_at, a.cursor, a.max_bucket, a.rules, a.cursor_reading
    FROM added a;
    RETURN NULL;
END $$;

-- The row of schedules may be behind: what the writer did not change stays what positions say, and
-- within a series the cursor goes back only where somebody put it back on purpose.
CREATE FUNCTION move_position() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    WITH was AS (
        DELETE FROM positions p
        WHERE p.namespace = NEW.namespace AND p.key = NEW.key
          AND p.step = (SELECT n.step FROM position_of(NEW.namespace, NEW.key) n)
        RETURNING p.*),
    merged AS (
        SELECT was.step, was.behind_since, leads.yes AS leads,
               CASE WHEN leads.yes THEN NEW.cursor ELSE was.cursor END AS cursor,
               CASE WHEN leads.yes THEN NEW.cursor_reading ELSE was.cursor_reading END AS reading,
               greatest(was.max_bucket, NEW.max_bucket) AS max_bucket,
               CASE WHEN NEW.next_fire_at IS DISTINCT FROM OLD.next_fire_at
                         OR (leads.yes AND NEW.cursor <> OLD.cursor)
                    THEN NEW.next_fire_at ELSE was.next_fire_at END AS next_fire_at
        FROM was CROSS JOIN LATERAL (
            SELECT NEW.series <> OLD.series OR NEW.cursor < OLD.cursor OR NEW.cursor >= was.cursor
                   AS yes) AS leads)
    INSERT INTO positions (namespace, key, step, project, lane, due_at, next_fire_at, cursor,
                           max_bucket, rules, cursor_reading, behind_since)
    SELECT NEW.namespace, NEW.key, m.step + 1, NEW.project, NEW.lane,
           CASE WHEN m.next_fire_at IS NOT NULL THEN greatest(m.next_fire_at, statement_timestamp()) END,
           m.next_fire_at, m.cursor, m.max_bucket, NEW.rules, m.reading,
           CASE WHEN (m.cursor, m.next_fire_at, m.max_bucket)
                     IS DISTINCT FROM (NEW.cursor, NEW.next_fire_at, NEW.max_bucket)
                THEN coalesce(m.behind_since, clock_timestamp()) END
    FROM merged m;
    RETURN NULL;
END $$;

CREATE FUNCTION refuse_position(key text, old timestamptz, new timestamptz) RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the cursor of % would go back from % to %', key, old, new;
END $$;

-- step
-- The triggers first: nobody writes to schedules until all of it is here. 100,000 rows take a second.
CREATE TRIGGER positions_added AFTER INSERT ON schedules
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION add_positions();
CREATE TRIGGER position_moved AFTER UPDATE ON schedules FOR EACH ROW
    WHEN (NEW.position_step IS NOT DISTINCT FROM OLD.position_step
          AND (NEW.next_fire_at, NEW.cursor, NEW.cursor_reading, NEW.max_bucket, NEW.rules,
               NEW.project, NEW.lane)
              IS DISTINCT FROM
              (OLD.next_fire_at, OLD.cursor, OLD.cursor_reading, OLD.max_bucket, OLD.rules,
               OLD.project, OLD.lane))
    EXECUTE FUNCTION move_position();

INSERT INTO positions (namespace, key, step, project, lane, due_at, next_fire_at, cursor, max_bucket,
                       rules, cursor_reading)
SELECT namespace, key, 1, project, lane,
       CASE WHEN next_fire_at IS NOT NULL THEN greatest(next_fire_at, statement_timestamp()) END,
       next_fire_at, cursor, max_bucket, rules, cursor_reading
FROM schedules;
