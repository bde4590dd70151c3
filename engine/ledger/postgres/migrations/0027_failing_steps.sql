-- beside: 10
-- The steps of open runs that go on failing, where every process can read them. Code of before closes runs
-- and leaves the column as it is; the view shows it of open runs alone.

ALTER TABLE fires ADD COLUMN failing jsonb;
COMMENT ON COLUMN fires.failing IS 'The steps of the open run that go on failing. Without a meaning in any other row: read it in fire_history.';

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
       CASE WHEN status = 'started' AND lost_at IS NULL THEN failing END AS failing
FROM fires CROSS JOIN (VALUES (true)) AS read_only (yes);

-- step
-- With the expression of the view, so that its readers use it. The server keeps no statistics of that, and
-- takes nearly every row for one that has it: by the other two conditions it knows that they are few.
CREATE INDEX CONCURRENTLY fires_failing ON fires (namespace, fire_time DESC, key)
    WHERE status = 'started' AND lost_at IS NULL
      AND CASE WHEN status = 'started' AND lost_at IS NULL THEN failing END IS NOT NULL;
