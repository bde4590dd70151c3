-- beside: 10
-- How lists of schedules are filtered, and how applications create them. The functions are those of
-- schedule_rows.py.

CREATE FUNCTION schedule_state(retired_at timestamptz, definition jsonb, paused_at timestamptz,
                               next_fire_at timestamptz) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN retired_at IS NOT NULL THEN 'retired'
               WHEN definition ->> 'enabled' = 'false' THEN 'disabled'
               WHEN paused_at IS NOT NULL THEN 'paused'
               WHEN next_fire_at IS NOT NULL THEN 'active'
               ELSE 'ended' END $$;

CREATE FUNCTION job_status(state text, last_status text, once boolean) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN state = 'retired' THEN coalesce(CASE WHEN once THEN became.outcome END, 'cancelled')
               WHEN last_status IN ('claimed', 'starting', 'started') THEN 'active'
               WHEN state = 'ended' THEN coalesce(became.outcome, CASE last_status WHEN 'queued' THEN 'pending' ELSE 'completed' END)
               ELSE 'pending' END
   FROM (SELECT CASE WHEN last_status = 'completed' THEN 'completed'
                     WHEN last_status IN ('failed', 'timed_out', 'expired', 'rejected', 'unvouched') THEN 'failed'
                     WHEN last_status IN ('cancelled', 'terminated', 'skipped') THEN 'cancelled' END AS outcome) AS became $$;

-- step
-- The workflow with any version, in key order.
CREATE INDEX CONCURRENTLY schedules_workflow ON schedules (namespace, split_part(workflow, '@', 1), key);

-- step
CREATE INDEX CONCURRENTLY definitions_topic ON definitions (namespace, (definition ->> 'topic'), key)
    WHERE definition ? 'topic';

-- step
-- Of all names in metadata: owner, tenant and correlation are three of them.
CREATE INDEX CONCURRENTLY definitions_metadata ON definitions USING gin ((definition -> 'metadata') jsonb_path_ops)
    WHERE definition ? 'metadata';

-- step
-- The few schedules whose workflow no worker has announced.
CREATE INDEX CONCURRENTLY schedules_unresolved ON schedules (namespace, task_queue, workflow)
    WHERE workflow_type IS NULL AND NOT external AND retired_at IS NULL;
