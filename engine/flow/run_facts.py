"""What a run knows of itself, the same on every replay."""

from __future__ import annotations

import logging
from datetime import datetime
from random import Random
from uuid import UUID

import temporalio.workflow

from engine.errors import EngineError
from engine.flow.fire import MEMO_KEY, FireInfo


class RunFacts:
    """The part of ``Context`` that waits for nothing."""

    @property
    def scheduled(self) -> bool:
        """Whether a schedule started this run, so that ``fire`` can be read."""
        try:
            self._read_fire()
        except ValueError:
            return False
        return True

    @property
    def fire(self) -> FireInfo:
        """The window this run stands for.

        Raises:
            EngineError: The run was started by hand, not by a schedule (see ``scheduled``).
        """
        try:
            return self._read_fire()
        except ValueError as error:
            raise EngineError(
                f"ctx.fire: no schedule started the run {temporalio.workflow.info().workflow_id!r}"
                f" ({error})",
                cure="ask ctx.scheduled first",
            ) from None

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that names the run and stays silent on replay."""
        return temporalio.workflow.logger

    def now(self) -> datetime:
        """Return the run's own time, aware, in UTC: the same on every replay."""
        return temporalio.workflow.now()

    def random(self) -> Random:
        """Return the run's own source of random numbers: the same on every replay."""
        return temporalio.workflow.random()

    def uuid(self) -> UUID:
        """Return a new UUID: the same on every replay."""
        return temporalio.workflow.uuid4()

    def patched(self, change: str) -> bool:
        """Return whether this run may take the new way of a change of its code.

        A run that passed here with the old code takes the old way for good, every other one the
        new way: ``if ctx.patched("send-twice"): ... else: ...``. Once no run of the old code is
        left, Temporal's ``workflow.deprecate_patch`` and then removal end it.
        """
        return temporalio.workflow.patched(change)

    def _read_fire(self) -> FireInfo:
        value = temporalio.workflow.memo_value(MEMO_KEY, None)
        if value is None:
            raise ValueError(f"its memo has no {MEMO_KEY!r}")
        return FireInfo.from_memo(value)
