-- beside: 10
-- Problems that workers and `sched watch` have found. All of them look, and one of them tells the receiver.

CREATE TABLE alerts (
    namespace    text NOT NULL,
    name         text NOT NULL,
    code         text NOT NULL,
    text         text NOT NULL,
    since        timestamptz NOT NULL,
    project      text,
    key          text,
    cause        text,
    opened_at    timestamptz NOT NULL,
    resolved_at  timestamptz,
    sent         boolean NOT NULL DEFAULT false,
    attempts     integer NOT NULL DEFAULT 0,
    error        text,
    due_at       timestamptz,
    PRIMARY KEY (namespace, name)
);
COMMENT ON TABLE alerts IS 'Each problem that lasts, and those whose end the receiver is still to be told.';
COMMENT ON COLUMN alerts.name IS 'The same in every process for as long as the problem lasts.';
COMMENT ON COLUMN alerts.sent IS 'Whether the receiver has confirmed that it is open.';
COMMENT ON COLUMN alerts.due_at IS 'When the receiver is to be told of the present state; null once it has confirmed it.';
CREATE INDEX alerts_due ON alerts (namespace, due_at) WHERE due_at IS NOT NULL;

-- step
-- The few schedules whose plan fails now.
CREATE INDEX CONCURRENTLY schedules_backing_off ON schedules (namespace, key) WHERE failures > 0;

-- step
-- The few schedules that declare their limits.
CREATE INDEX CONCURRENTLY definitions_with_alert ON definitions (namespace, key, version) WHERE definition ? 'alert';
