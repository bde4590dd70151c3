-- beside: 10
-- Whether anybody polls the task queues on which external schedules start workflows: their workers are
-- none of ours, and announce nothing.

CREATE TABLE polled_queues (
    namespace   text NOT NULL,
    task_queue  text NOT NULL,
    polled_at   timestamptz,
    waiting     bigint NOT NULL,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    looked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace, task_queue)
);
COMMENT ON TABLE polled_queues IS 'What Temporal said last of the task queues of external schedules. The tracker writes it.';
COMMENT ON COLUMN polled_queues.polled_at IS 'When a worker polled it last, by the clock of Temporal; NULL: none that Temporal remembers.';
COMMENT ON COLUMN polled_queues.waiting IS 'How many tasks of runs wait there, about.';
COMMENT ON COLUMN polled_queues.since IS 'When it was looked at first.';
