"""Application of schedule files to the ledger."""
