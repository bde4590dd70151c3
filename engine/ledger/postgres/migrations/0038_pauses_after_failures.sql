-- beside: 10
-- The few schedules that are paused after failures, as definitions_with_alert; and whose data begin where
-- another scheduler has had those of shadow mode.
CREATE INDEX CONCURRENTLY definitions_paused_after_failures ON definitions (namespace, key, version)
    WHERE definition ? 'pauseAfterFailures';

-- step
-- As in 0022; a window of shadow mode had its run elsewhere.
CREATE OR REPLACE FUNCTION window_before(of_namespace text, of_key text, moment timestamptz)
RETURNS TABLE (fire_time timestamptz) LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT least(f.last_fire_time, moment)
    FROM fires f
    WHERE f.namespace = of_namespace AND f.key BETWEEN of_key AND of_key AND f.fire_time < moment
      AND (f.status NOT IN ('skipped', 'expired', 'rejected', 'unvouched') OR f.reason_code = 'shadow')
      AND f.kind IN ('window', 'rerun') AND f.data_from IS DISTINCT FROM 'infinity'
    ORDER BY f.key, f.fire_time DESC, f.id DESC LIMIT 1;
END;

-- step
-- Since when failures count.
CREATE INDEX CONCURRENTLY actions_resumed ON actions (namespace, key, at DESC, id DESC) WHERE verb = 'resume';
