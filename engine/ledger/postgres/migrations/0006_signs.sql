-- Signs that commits were lost: which server, and which of its histories, the ledger was written by
-- last, and up to when windows may have had runs of which it knows nothing.
ALTER TABLE ledger
    ADD COLUMN system text,
    ADD COLUMN timeline bigint,
    ADD COLUMN doubted_at timestamptz;
COMMENT ON COLUMN ledger.system IS 'The system identifier of the server that wrote last, where it tells.';
COMMENT ON COLUMN ledger.timeline IS 'The timeline of that server. It grows with each promotion of a standby.';
COMMENT ON COLUMN ledger.doubted_at IS 'When somebody saw a sign of lost commits last: windows up to then are looked up in Temporal before they are decided.';
