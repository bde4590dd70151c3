-- beside: 10
-- Runs that applications start under an id of their own. The ids stay for ever: the same one never starts
-- a second run, however long ago its fire has left the ledger.

CREATE TABLE starts (
    namespace     text NOT NULL,
    workflow      text NOT NULL,
    start_id      text NOT NULL,
    digest        text NOT NULL,
    requested     text NOT NULL,
    project       text NOT NULL,
    task_queue    text NOT NULL,
    requested_by  text NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, workflow, start_id)
);
COMMENT ON TABLE starts IS 'Each id under which an application has started a workflow. Never changed, and never deleted.';
COMMENT ON COLUMN starts.workflow IS 'The name, without a version: an id is used once for all of them.';
COMMENT ON COLUMN starts.digest IS 'SHA-256 of the input. The same id with another input is refused.';
COMMENT ON COLUMN starts.requested IS 'The workflow as it was asked for: name, or name@version.';

-- step
-- Their fires belong to the row @<workflow>, which fires no window: it is in no project, and on no task
-- queue that a worker serves.
ALTER TABLE schedules
    DROP CONSTRAINT schedules_key_check,
    ADD CONSTRAINT schedules_key_check CHECK (
        key ~ '^([a-z0-9][a-z0-9._-]{0,199}|@[A-Za-z0-9_][A-Za-z0-9._-]{0,199})$') NOT VALID;

-- step
ALTER TABLE schedules VALIDATE CONSTRAINT schedules_key_check;
