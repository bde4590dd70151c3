"""The database in which the steps of test_sagas.py, test_scopes.py and test_resets.py have effects.

The test and its steps share a process: each effect in a connection of its own would cost more than
the run that has it.
"""

from __future__ import annotations

import asyncpg


class Stored:
    """Where it is while a module of tests runs."""

    pool: asyncpg.Pool


STORED = Stored()
