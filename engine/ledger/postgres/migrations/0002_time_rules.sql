-- By which evaluator and zone rules a schedule was last computed. '' is older than any.
ALTER TABLE schedules
    ADD COLUMN rules text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN cursor_reading timestamp;
COMMENT ON COLUMN schedules.rules IS 'Evaluator and tzdata version that cursor and next_fire_at were computed by. A replica with older ones leaves the row.';
COMMENT ON COLUMN schedules.cursor_reading IS 'Of a fixed-time cron: the latest local time it had come to at the cursor, by those rules.';
