"""Real servers for tests: one PostgreSQL and one Temporal per session, on free ports."""

from __future__ import annotations

from engine.testing.server import FOR_TESTS, register_namespace, run_apart, shared_folder

FAST_AND_FORGETFUL = FOR_TESTS

__all__ = ["FAST_AND_FORGETFUL", "register_namespace", "run_apart", "shared_folder"]
