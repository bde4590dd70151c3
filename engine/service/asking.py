"""The verbs of applications, which declare schedules of their own."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from engine.runtime import unknown
from engine.runtime.source import DEFAULT_PROJECT
from engine.runtime.verbs.one_shots import Asked, ask_for, reschedule
from engine.service.reading import Reading


class Asking(Reading):
    """What an application asks for without a file."""

    async def schedule_at(
        self,
        workflow: str,
        at: datetime | str,
        *,
        key: str | None = None,
        request_id: str | None = None,
        project: str = DEFAULT_PROJECT,
        reason: str | None = None,
        **fields: Any,
    ) -> Asked:
        """Start a workflow once, at ``at``; see ``one_shots.ask_for``.

        It is asked for also where no worker lives that would start it: ``Asked.waiting`` says so.

        Args:
            workflow: what to start, as a schedule file names it.
            at: an aware instant, or ISO 8601; without an offset it is local to ``timezone``.
            key: names the schedule; without one it gets a key of its own.
            request_id: asking twice under one id is refused.
            project: whose workers start it.
            reason: why, for the audit.
            fields: further fields of a schedule, by their names in a file: ``input``,
                ``timezone``, ``taskQueue``, ``metadata``.
        """
        moment = at if isinstance(at, str) else as_text(at)
        asked = await ask_for(
            self._ledger, {"workflow": workflow, "at": moment, **fields}, by=self._actor,
            project=project, key=key, request_id=request_id, reason=reason,
        )  # fmt: skip
        return await self._with_workers(asked)

    async def schedule_repeat(
        self,
        workflow: str,
        *,
        key: str | None = None,
        request_id: str | None = None,
        project: str = DEFAULT_PROJECT,
        reason: str | None = None,
        **fields: Any,
    ) -> Asked:
        """Start a workflow again and again, by ``everyMs`` or ``cron``; see ``schedule_at``."""
        asked = await ask_for(
            self._ledger, {"workflow": workflow, **fields}, by=self._actor,
            project=project, key=key, request_id=request_id, reason=reason,
        )  # fmt: skip
        return await self._with_workers(asked)

    async def reschedule(self, key: str, *, reason: str | None = None, **when: Any) -> Asked:
        """Let a schedule of an application fire at other times; see ``one_shots.reschedule``.

        Args:
            key: of the schedule.
            reason: why, for the audit.
            when: the fields that say when, by their names in a file; ``at`` may be an instant.
        """
        if isinstance(at := when.get("at"), datetime):
            when["at"] = as_text(at)
        async with self._near():
            asked = await reschedule(self._ledger, key, when, by=self._actor, reason=reason)
        return await self._with_workers(asked)

    async def _with_workers(self, asked: Asked) -> Asked:
        """Say where no worker lives that would start it; it is asked for all the same."""
        if asked.waiting is not None:
            return asked
        workflow = asked.workflow_type or asked.schedule.workflow
        lane, served = asked.schedule.lane, await self.served()
        place = unknown.unserved_at(asked.project, lane, workflow, served)
        return replace(asked, waiting=unknown.no_worker_lives({place: 1})) if place else asked


def as_text(moment: datetime) -> str:
    """Return an instant as a schedule has it: to the millisecond, floored.

    Raises:
        ValueError: it is naive; its meaning would depend on the machine.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} is naive; give it a time zone, e.g. tzinfo=UTC")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
