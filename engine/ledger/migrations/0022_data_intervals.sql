-- beside: 10
-- Where the data of each run begin. The runs of a key share them out: each has what came since the last
-- window that began before it, or is still to begin, whatever became of the windows between. One that
-- begins after a later run has had its data repeats its own share alone, and is left out of that.

ALTER TABLE fires ADD COLUMN data_from timestamptz;
COMMENT ON COLUMN fires.data_from IS 'Where the data of its run begin; -infinity: no run came before it. infinity: at the window before it by the definition, since a later run has had them too. NULL until it starts, and where nobody knows.';

CREATE TABLE data_gaps (
    namespace   text NOT NULL,
    key         text NOT NULL,
    fire_time   timestamptz NOT NULL,
    bucket      bigint NOT NULL,
    data_from   timestamptz,
    noted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    told_at     timestamptz,
    PRIMARY KEY (namespace, key, fire_time)
);
COMMENT ON TABLE data_gaps IS 'Windows that did not run after all. Those that were told had left their data to no run: a later one had begun, which counted on them.';
COMMENT ON COLUMN data_gaps.data_from IS 'Where the data that nobody has begin, once told; they end at fire_time.';
CREATE INDEX data_gaps_untold ON data_gaps (namespace, noted_at) WHERE told_at IS NULL;
SELECT grant_as_on_schedules('data_gaps');

-- The last window before a moment that has begun, or is still to begin. The denied ones since then are
-- walked once: the next look stops at whatever began meanwhile.
CREATE FUNCTION window_before(of_namespace text, of_key text, moment timestamptz)
RETURNS TABLE (fire_time timestamptz) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT least(f.last_fire_time, moment)
    FROM fires f
    WHERE f.namespace = of_namespace AND f.key BETWEEN of_key AND of_key AND f.fire_time < moment
      AND f.status NOT IN ('skipped', 'expired', 'rejected', 'unvouched') AND f.kind IN ('window', 'rerun')
      AND f.data_from IS DISTINCT FROM 'infinity'
    ORDER BY f.key, f.fire_time DESC, f.id DESC LIMIT 1;
END;

-- The first window after a moment that has begun, or is still to begin; of what has begun where its data do.
CREATE FUNCTION window_after(of_namespace text, of_key text, moment timestamptz)
RETURNS TABLE (data_from timestamptz) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN f.status NOT IN ('claimed', 'queued') THEN f.data_from END
    FROM fires f
    WHERE f.namespace = of_namespace AND f.key BETWEEN of_key AND of_key AND f.fire_time > moment
      AND f.status NOT IN ('skipped', 'expired', 'rejected', 'unvouched') AND f.kind IN ('window', 'rerun')
      AND f.data_from IS DISTINCT FROM 'infinity'
    ORDER BY f.key DESC, f.fire_time, f.id LIMIT 1;
END;

-- Fixed when a fire is sent first, whoever sends it.
CREATE FUNCTION fix_data_from() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE its record; covered boolean;
BEGIN
    IF NEW.kind = 'rerun' THEN
        -- One more run of a window that had one is about the same data.
        SELECT w.data_from INTO its FROM fires w
        WHERE w.namespace = NEW.namespace AND w.key = NEW.key AND w.series = NEW.series
          AND w.fire_time = NEW.fire_time AND w.kind = 'window'
          AND w.status NOT IN ('claimed', 'queued', 'skipped', 'expired', 'rejected', 'unvouched');
        IF FOUND THEN
            NEW.data_from := its.data_from;
            RETURN NEW;
        END IF;
    END IF;
    SELECT a.data_from < NEW.fire_time INTO covered
    FROM window_after(NEW.namespace, NEW.key, NEW.fire_time) AS a;
    IF covered THEN
        NEW.data_from := 'infinity';
    ELSE
        SELECT b.fire_time INTO NEW.data_from FROM window_before(NEW.namespace, NEW.key, NEW.fire_time) AS b;
        -- What was forgotten may have been a run.
        IF NOT FOUND AND NOT EXISTS (SELECT FROM chores c
                                     WHERE c.namespace = NEW.namespace AND c.key = NEW.key
                                       AND c.forgotten_until IS NOT NULL) THEN
            NEW.data_from := '-infinity';
        END IF;
    END IF;
    RETURN NEW;
END $$;

-- A later run may have counted on it. Whether one has is looked at once nobody can be about to.
CREATE FUNCTION note_denied() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO data_gaps (namespace, key, fire_time, bucket)
    VALUES (NEW.namespace, NEW.key, NEW.fire_time, NEW.bucket)
    ON CONFLICT (namespace, key, fire_time) DO NOTHING;
    RETURN NULL;
END $$;

-- What has begun has its data: they are no gap any more, or the gap begins behind them.
CREATE FUNCTION close_data_gaps() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM data_gaps g WHERE g.namespace = NEW.namespace AND g.key = NEW.key) THEN
        DELETE FROM data_gaps g
        WHERE g.namespace = NEW.namespace AND g.key = NEW.key AND g.fire_time <= NEW.fire_time
          AND (g.fire_time = NEW.fire_time OR g.fire_time > NEW.data_from);
        UPDATE data_gaps g SET data_from = NEW.fire_time
        WHERE g.namespace = NEW.namespace AND g.key = NEW.key AND g.fire_time > NEW.fire_time
          AND g.data_from < NEW.fire_time AND NEW.data_from <= g.data_from;
    END IF;
    RETURN NULL;
END $$;

-- step
CREATE TRIGGER its_data_begin BEFORE INSERT ON fires FOR EACH ROW
    WHEN (NEW.status = 'starting' AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION fix_data_from();
CREATE TRIGGER its_data_begin_later BEFORE UPDATE OF status ON fires FOR EACH ROW
    WHEN (NEW.status = 'starting' AND OLD.status <> 'starting' AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION fix_data_from();
CREATE TRIGGER it_has_its_data AFTER INSERT ON fires FOR EACH ROW
    WHEN (NEW.status IN ('starting', 'started') AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION close_data_gaps();
CREATE TRIGGER it_has_its_data_later AFTER UPDATE OF status ON fires FOR EACH ROW
    WHEN (OLD.status IN ('claimed', 'queued', 'skipped', 'expired', 'rejected', 'unvouched')
          AND NEW.status NOT IN ('claimed', 'queued', 'skipped', 'expired', 'rejected', 'unvouched')
          AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION close_data_gaps();
CREATE TRIGGER nobody_has_its_data AFTER UPDATE OF status ON fires FOR EACH ROW
    WHEN (OLD.status IN ('claimed', 'queued', 'starting')
          AND NEW.status IN ('skipped', 'expired', 'rejected', 'unvouched')
          AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION note_denied();
