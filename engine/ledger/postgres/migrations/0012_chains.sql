-- beside: 10
-- A run is its whole chain: whatever it continues as, retries as or is reset to has the same first run.
ALTER TABLE fires
    ADD COLUMN first_run_id text,
    ADD COLUMN stop_asked_at timestamptz;
-- step
COMMENT ON COLUMN fires.first_run_id IS 'The first run of the chain, once known; run_id is the newest that was booked.';
-- step
COMMENT ON COLUMN fires.stop_asked_at IS 'When the run was first asked to end; stop_grace counts from here.';
