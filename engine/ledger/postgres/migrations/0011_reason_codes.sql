-- beside: 10
-- Why a fire became what it is, as a word of a closed list: sentences are for people.

ALTER TABLE fires ADD COLUMN reason_code text;
COMMENT ON COLUMN fires.reason_code IS 'The reason as one word, see docs/ledger.md. Of rows from before this migration NULL until the janitor has filled it.';

-- step

-- The same as engine/schedules/reason_codes.py.
CREATE FUNCTION reason_code_of(reason text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN starts_with(reason, 'user') THEN 'user'
        WHEN starts_with(reason, 'overlap: the queue is full') THEN 'queue_full'
        WHEN starts_with(reason, 'overlap') THEN 'overlap'
        WHEN starts_with(reason, 'excluded') THEN 'excluded'
        WHEN starts_with(reason, 'coalesced into') THEN 'coalesced'
        WHEN starts_with(reason, 'dependency') THEN 'dependency'
        WHEN starts_with(reason, 'paused') THEN 'paused'
        WHEN starts_with(reason, 'disabled') THEN 'disabled'
        WHEN starts_with(reason, 'retired') THEN 'retired'
        WHEN starts_with(reason, 'older than the catch-up window') THEN 'expired'
        WHEN starts_with(reason, 'beyond catchUp.max') THEN 'expired'
        WHEN starts_with(reason, 'missed, and catchUp is none') THEN 'expired'
        WHEN starts_with(reason, 'had passed when it was declared') THEN 'expired'
        WHEN starts_with(reason, 'first sight') THEN 'first_sight'
        WHEN starts_with(reason, 'caught up for') THEN 'caught_up'
        WHEN starts_with(reason, 'no worker on task queue') THEN 'unknown_workflow'
        WHEN starts_with(reason, 'foreign run') THEN 'foreign_run'
        WHEN starts_with(reason, 'refused by the server') THEN 'refused'
        WHEN starts_with(reason, 'payload too large') THEN 'payload_too_large'
        WHEN starts_with(reason, 'may have run') THEN 'may_have_run'
    END
$$;
-- By its own search path: somebody may write with another.
CREATE FUNCTION derive_reason_code() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    NEW.reason_code := reason_code_of(NEW.reason);
    RETURN NEW;
END $$;

-- step

-- Writers of the version before give none. An ordinary start has no reason, and calls nothing.
CREATE TRIGGER a_new_reason_has_its_code BEFORE INSERT ON fires
    FOR EACH ROW WHEN (NEW.reason IS NOT NULL AND NEW.reason_code IS NULL)
    EXECUTE FUNCTION derive_reason_code();
CREATE TRIGGER another_reason_has_its_code BEFORE UPDATE OF reason ON fires
    FOR EACH ROW WHEN (NEW.reason IS DISTINCT FROM OLD.reason
                       AND NEW.reason_code IS NOT DISTINCT FROM OLD.reason_code)
    EXECUTE FUNCTION derive_reason_code();

-- step

CREATE OR REPLACE VIEW fire_history AS
SELECT namespace, project, key, series, bucket, fire_time, windows, last_fire_time, workflow_id,
       run_id, workflow_type, task_queue, status, reason, timing, missed, started_at, closed_at,
       CASE WHEN started_at IS NOT NULL
            THEN round(extract(epoch FROM started_at - fire_time) * 1000)::bigint END AS lag_ms,
       error, attempts, replica, definition_version, decided_at, history,
       kind, missed_from, input, stop, stop_reason, lost_at, merged_at,
       coalesce(reason_code, reason_code_of(reason)) AS reason_code
FROM fires CROSS JOIN (VALUES (true)) AS read_only (yes);
