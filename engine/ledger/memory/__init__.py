"""Ledger in memory, for stateless mode and tests."""
