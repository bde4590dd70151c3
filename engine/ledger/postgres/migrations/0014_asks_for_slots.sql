-- beside: 10
-- Which of a replica's calls has written a slot: one that arrives late changes nothing of a later one.
ALTER TABLE queue_slots ADD COLUMN asked bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN queue_slots.asked IS 'The number of the holder''s call that took or renewed it last.';
