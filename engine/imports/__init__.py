"""Imports: schedules of other schedulers as entries of a schedule file, differences named.

Each module reads one source and returns an `Import`; nothing is written, and no ledger is needed.
"""
