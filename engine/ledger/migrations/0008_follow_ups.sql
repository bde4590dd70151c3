-- What holds for the runs of a type, whichever replica starts them.
ALTER TABLE workflow_types ADD COLUMN rules jsonb;
COMMENT ON COLUMN workflow_types.rules IS 'Timeout and retry of a run, and whether an ended one is undone, as its class declares them; the last announcement wins.';
