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
    noted_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    told_at     timestamptz,
    PRIMARY KEY (namespace, key, fire_time)
);
COMMENT ON TABLE data_gaps IS 'Windows that did not run after all. Of those that were told a later run had counted on them, so that nobody had their data then.';
CREATE INDEX data_gaps_untold ON data_gaps (namespace, noted_at) WHERE told_at IS NULL;

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

-- Where the data begin of the first window after a moment that has begun; NULL where one is still to begin
-- before that. One that came to be pending later, as a backfill or a rerun, says nothing: whoever began
-- before had its data already.
CREATE FUNCTION window_after(of_namespace text, of_key text, moment timestamptz)
RETURNS TABLE (data_from timestamptz) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN f.status NOT IN ('claimed', 'queued') THEN f.data_from END
    FROM fires f
    WHERE f.namespace = of_namespace AND f.key BETWEEN of_key AND of_key AND f.fire_time > moment
      AND f.status NOT IN ('skipped', 'expired', 'rejected', 'unvouched') AND f.kind IN ('window', 'rerun')
      AND NOT (f.status IN ('claimed', 'queued') AND (f.kind = 'rerun' OR f.timing IS NOT DISTINCT FROM 'backfill'))
      AND f.data_from IS DISTINCT FROM 'infinity'
    ORDER BY f.key DESC, f.fire_time, f.id LIMIT 1;
END;

-- Where the data begin of a window that begins now; NULL where nobody knows, since what was forgotten
-- may have been a run.
CREATE FUNCTION data_from_of(of_namespace text, of_key text, moment timestamptz)
RETURNS TABLE (data_from timestamptz) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT CASE WHEN later.data_from < moment THEN 'infinity'
                WHEN before.fire_time IS NOT NULL THEN before.fire_time
                WHEN NOT EXISTS (SELECT FROM chores c
                                 WHERE c.namespace = of_namespace AND c.key = of_key
                                   AND c.forgotten_until IS NOT NULL) THEN '-infinity' END
    FROM (SELECT 1) AS always
    LEFT JOIN LATERAL window_after(of_namespace, of_key, moment) AS later ON true
    LEFT JOIN LATERAL window_before(of_namespace, of_key, moment) AS before ON true;
END;

-- Fixed when a fire is sent first, whoever sends it. A plan that begins one window of a key does the same
-- in its statement, which costs half.
CREATE FUNCTION fix_data_from() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE its record;
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
    SELECT d.data_from INTO NEW.data_from FROM data_from_of(NEW.namespace, NEW.key, NEW.fire_time) AS d;
    RETURN NEW;
END $$;

-- A later run may have counted on it. Whether one has is looked at once nobody can be about to.
CREATE FUNCTION note_denied() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO data_gaps (namespace, key, fire_time, bucket)
    VALUES (NEW.namespace, NEW.key, NEW.fire_time, NEW.bucket)
    ON CONFLICT (namespace, key, fire_time) DO UPDATE SET noted_at = clock_timestamp(), told_at = NULL;
    RETURN NULL;
END $$;

-- step
CREATE TRIGGER its_data_begin BEFORE INSERT ON fires FOR EACH ROW
    WHEN (NEW.status = 'starting' AND NEW.data_from IS NULL AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION fix_data_from();
CREATE TRIGGER its_data_begin_later BEFORE UPDATE OF status ON fires FOR EACH ROW
    WHEN (NEW.status = 'starting' AND OLD.status <> 'starting' AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION fix_data_from();
CREATE TRIGGER nobody_has_its_data AFTER UPDATE OF status ON fires FOR EACH ROW
    WHEN (OLD.status IN ('claimed', 'queued', 'starting')
          AND NEW.status IN ('skipped', 'expired', 'rejected', 'unvouched')
          AND NEW.kind IN ('window', 'rerun'))
    EXECUTE FUNCTION note_denied();
