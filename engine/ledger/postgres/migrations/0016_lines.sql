-- beside: 10
-- What waits in line has a table of its own, and is counted as it comes and goes: a plan reads as many
-- fires as it can decide on, however many wait behind them.

CREATE TABLE line (
    namespace  text NOT NULL,
    key        text NOT NULL,
    pending    boolean NOT NULL,
    fire_id    bigint NOT NULL,
    PRIMARY KEY (namespace, key, pending, fire_id)
);
COMMENT ON TABLE line IS 'The queued fires of each key, in their order. An index of fires would not do: to find the first of a line by id, the planner may walk the primary key through all that has ended.';
COMMENT ON COLUMN line.pending IS 'Whether the fire waits for windows of other schedules, and not only for a place.';

CREATE TABLE line_changes (
    namespace  text NOT NULL,
    key        text NOT NULL,
    id         bigint GENERATED ALWAYS AS IDENTITY,
    waiting    integer NOT NULL,
    pending    integer NOT NULL,
    PRIMARY KEY (namespace, key, id)
);
COMMENT ON TABLE line_changes IS 'By how much the line of a key grew or shrank; the sums of its rows are the length of the line. A row for each change and no counter, because a run that is seen moves its fire without the lock of its schedule; a plan folds them into one.';

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
INSERT INTO line (namespace, key, pending, fire_id)
SELECT namespace, key, awaits IS NOT NULL, id FROM fires WHERE status = 'queued';
INSERT INTO line_changes (namespace, key, waiting, pending)
SELECT namespace, key, count(*) FILTER (WHERE NOT pending), count(*) FILTER (WHERE pending)
FROM line GROUP BY namespace, key;

-- step
CREATE INDEX CONCURRENTLY fires_running ON fires (namespace, key, id)
    WHERE status IN ('claimed', 'starting', 'started') AND lost_at IS NULL;
