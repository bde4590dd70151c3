"""Audit: what every schedule owed, compared with what the ledger and Temporal have of it."""
