-- What holds for the runs of a type, whichever replica starts them.
ALTER TABLE workflow_types ADD COLUMN rules jsonb;
COMMENT ON COLUMN workflow_types.rules IS 'Timeout and retry of a run, and whether an ended one is undone, as its class declares them; the last announcement wins.';

-- A dead letter is a fire that ended badly and that nobody has dealt with. Whoever was there before
-- this migration has looked at, or lived with, what failed before it.
ALTER TABLE fires
    ADD COLUMN dealt_at timestamptz,
    ADD COLUMN not_undone jsonb;
COMMENT ON COLUMN fires.dealt_at IS 'When somebody dealt with the failure: ran the window again, or dropped the letter.';
COMMENT ON COLUMN fires.not_undone IS 'What a run could not take back: a JSON list of step, undo and error.';
UPDATE fires SET dealt_at = clock_timestamp() WHERE status IN ('failed', 'timed_out', 'rejected');
CREATE INDEX fires_dead ON fires (namespace, fire_time DESC, workflow_id)
    WHERE status IN ('failed', 'timed_out', 'rejected') AND dealt_at IS NULL AND merged_at IS NULL;

CREATE VIEW dead_letters AS
SELECT f.namespace, f.project, f.key, f.series, f.bucket, f.fire_time, f.windows, f.last_fire_time,
       f.kind, f.workflow_id, f.run_id, f.workflow_type, f.task_queue, f.status, f.reason, f.error,
       f.attempts, f.started_at, coalesce(f.closed_at, f.decided_at) AS died_at,
       f.definition_version, coalesce(f.input, d.definition -> 'input') AS input, f.not_undone
FROM fires f
JOIN definitions d ON d.namespace = f.namespace AND d.key = f.key AND d.version = f.definition_version
WHERE f.status IN ('failed', 'timed_out', 'rejected') AND f.dealt_at IS NULL AND f.merged_at IS NULL;
COMMENT ON VIEW dead_letters IS 'Read-only and documented: what ended badly and nobody has dealt with.';

-- What follows a fire that ended badly: its handler, and the run that undoes what it did. Each end is
-- looked at once. Nothing follows what ended before this migration.
ALTER TABLE fires
    ADD COLUMN followed_at timestamptz,
    DROP CONSTRAINT fires_kind_check,
    ADD CONSTRAINT fires_kind_check CHECK (kind IN ('window', 'manual', 'rerun', 'handler'));
COMMENT ON COLUMN fires.followed_at IS 'When what follows the bad end of this fire was written, or it was seen that nothing does.';
UPDATE fires SET followed_at = clock_timestamp()
WHERE status IN ('failed', 'timed_out', 'rejected', 'terminated');
CREATE INDEX fires_to_follow ON fires (namespace, id)
    WHERE status IN ('failed', 'timed_out', 'rejected', 'terminated')
      AND followed_at IS NULL AND merged_at IS NULL AND kind <> 'handler';
