-- beside: 10
-- Inputs that a team's codec has encoded. What is sealed is nowhere where code of before looks for an input,
-- and that code may no longer work with the ledger once a project is sealed: see seal_project.sql.

CREATE TABLE seals (
    namespace   text NOT NULL,
    project     text NOT NULL,
    digest_key  text NOT NULL,
    sealed_by   text NOT NULL,
    sealed_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, project)
);
COMMENT ON TABLE seals IS 'The projects whose inputs are sealed. Never changed.';
COMMENT ON COLUMN seals.digest_key IS 'The key of the digests of inputs, as the codec wrote it, in base64.';

-- step
ALTER TABLE fires ADD COLUMN sealed_input jsonb;
COMMENT ON COLUMN fires.sealed_input IS 'The argument of this run alone, sealed; then input is NULL.';

-- step
CREATE OR REPLACE VIEW fire_history AS
SELECT namespace, project, key, series, bucket, fire_time, windows, last_fire_time, workflow_id,
       run_id, workflow_type, task_queue, status, reason,
       CASE WHEN kind = 'handler' THEN 'handler' ELSE timing END AS timing, missed, started_at, closed_at,
       CASE WHEN started_at IS NOT NULL
            THEN round(extract(epoch FROM started_at - fire_time) * 1000)::bigint END AS lag_ms,
       error, attempts, replica, definition_version, decided_at, history,
       kind, missed_from, input, stop, stop_reason, lost_at, merged_at,
       coalesce(reason_code, reason_code_of(reason)) AS reason_code,
       CASE WHEN status = 'started' AND lost_at IS NULL THEN failing END AS failing, sealed_input
FROM fires CROSS JOIN (VALUES (true)) AS read_only (yes);

-- step
CREATE OR REPLACE VIEW dead_letters AS
SELECT f.namespace, f.project, f.key, f.series, f.bucket, f.fire_time, f.windows, f.last_fire_time,
       f.kind, f.workflow_id, f.run_id, f.workflow_type, f.task_queue, f.status, f.reason, f.error,
       f.attempts, f.started_at, coalesce(f.closed_at, f.decided_at) AS died_at,
       f.definition_version,
       CASE WHEN f.sealed_input IS NULL THEN coalesce(f.input, d.definition -> 'input') END AS input, f.not_undone,
       coalesce(f.sealed_input, CASE WHEN f.input IS NULL THEN d.definition -> 'sealedInput' END) AS sealed_input
FROM fires f
JOIN definitions d ON d.namespace = f.namespace AND d.key = f.key AND d.version = f.definition_version
WHERE f.status IN ('failed', 'timed_out', 'rejected') AND f.dealt_at IS NULL AND f.merged_at IS NULL;
