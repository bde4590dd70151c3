-- beside: 10
-- What a run took, how often it and its steps were tried, and why it failed. Code of before leaves the
-- columns empty; the views show of a row only what fits its status.

ALTER TABLE fires
    ADD COLUMN duration_ms bigint,
    ADD COLUMN tries integer,
    ADD COLUMN step_retries integer,
    ADD COLUMN counted text,
    ADD COLUMN given_up text,
    ADD COLUMN failure jsonb,
    ADD COLUMN tried jsonb;
COMMENT ON COLUMN fires.duration_ms IS 'From the start of the first run of the chain to the close of the last, by Temporal''s clock where it is one run.';
COMMENT ON COLUMN fires.counted IS 'Where step_retries comes from: ''reported'' by the workers; ''elsewhere'': workers that report nothing run a step of the open run; ''wanted'': to be read from Temporal''s history; ''read''. Null: nobody has reported anything, and the run is open.';
COMMENT ON COLUMN fires.given_up IS 'How a step ended the run: retries_exhausted or fatal.';
COMMENT ON COLUMN fires.failure IS 'The chain of errors of a run that ended badly, the outermost first. Without a meaning for any other status.';
COMMENT ON COLUMN fires.tried IS 'The tries of a closed run as they were read from its history.';

-- step
CREATE OR REPLACE VIEW fire_history AS
SELECT namespace, project, key, series, bucket, fire_time, windows, last_fire_time, workflow_id,
       run_id, workflow_type, task_queue, status, reason,
       CASE WHEN kind = 'handler' THEN 'handler' ELSE timing END AS timing, missed, started_at, closed_at,
       CASE WHEN started_at IS NOT NULL
            THEN round(extract(epoch FROM started_at - fire_time) * 1000)::bigint END AS lag_ms,
       error, attempts, replica, definition_version, decided_at, history,
       kind, missed_from, input, stop, stop_reason, lost_at, merged_at, reason_code,
       CASE WHEN status = 'started' AND lost_at IS NULL THEN failing END AS failing, sealed_input,
       starting_at, duration_ms,
       CASE WHEN closed_at IS NOT NULL THEN tries END AS tries,
       CASE WHEN counted IN ('reported', 'read') THEN step_retries END AS step_retries,
       CASE WHEN status IN ('failed', 'timed_out', 'terminated') THEN failure END AS failure,
       CASE WHEN closed_at IS NOT NULL THEN tried END AS tried
FROM fires CROSS JOIN (VALUES (true)) AS read_only (yes);

-- step
CREATE OR REPLACE VIEW dead_letters AS
SELECT f.namespace, f.project, f.key, f.series, f.bucket, f.fire_time, f.windows, f.last_fire_time,
       f.kind, f.workflow_id, f.run_id, f.workflow_type, f.task_queue, f.status, f.reason, f.error,
       f.attempts, f.started_at, coalesce(f.closed_at, f.decided_at) AS died_at,
       f.definition_version,
       CASE WHEN f.sealed_input IS NULL THEN coalesce(f.input, d.definition -> 'input') END AS input, f.not_undone,
       coalesce(f.sealed_input, CASE WHEN f.input IS NULL THEN d.definition -> 'sealedInput' END) AS sealed_input,
       f.starting_at, f.duration_ms, f.tries,
       CASE WHEN f.counted IN ('reported', 'read') THEN f.step_retries END AS step_retries,
       CASE WHEN f.status = 'failed' THEN coalesce(f.given_up, 'failed') ELSE f.status END AS cause,
       f.failure, f.tried
FROM fires f
JOIN definitions d ON d.namespace = f.namespace AND d.key = f.key AND d.version = f.definition_version
WHERE f.status IN ('failed', 'timed_out', 'rejected') AND f.dealt_at IS NULL AND f.merged_at IS NULL;

-- step
-- The few closed runs whose counts are still to be read.
CREATE INDEX CONCURRENTLY fires_uncounted ON fires (namespace, id DESC) WHERE counted = 'wanted';
