-- Queues of steps: their limits, and who may run how many steps of them just now.

CREATE TABLE queues (
    namespace    text NOT NULL,
    queue        text NOT NULL CHECK (queue ~ '^[a-z0-9][a-z0-9._-]{0,199}$'),
    project      text NOT NULL,
    concurrency  integer CHECK (concurrency >= 1),
    rate         text,
    declared_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    declared_by  text NOT NULL,
    dropped_at   timestamptz,
    PRIMARY KEY (namespace, queue)
);
COMMENT ON COLUMN queues.rate IS 'As the file writes it: 100/1m.';
COMMENT ON COLUMN queues.dropped_at IS 'Since when no file declares it. Its last limits go on holding.';

-- The number of a slot is below the queue's concurrency, and no two rows have the same: so there
-- are never more of them, whoever writes at once.
CREATE TABLE queue_slots (
    namespace    text NOT NULL,
    lane         text NOT NULL,
    slot         integer NOT NULL CHECK (slot >= 0),
    queue        text NOT NULL,
    holder       text NOT NULL,
    lease_until  timestamptz NOT NULL,
    PRIMARY KEY (namespace, lane, slot)
);
COMMENT ON TABLE queue_slots IS 'One row is the right to run one step; a slot without a row is free.';
COMMENT ON COLUMN queue_slots.lane IS 'The Temporal task queue of the steps: <task queue>/<queue>.';
