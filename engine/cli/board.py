"""What the live table of ``sched up`` shows. Pure: it hears events and is told what is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from engine.cli.output import counted
from engine.ledger.records import Claim, Evidence, Fire, NextFire, Outcome
from engine.runtime.events import Closed, Event, Settled
from engine.schedules.planner import FIRST_SIGHT

_KEPT = 200
UNANSWERED = "not answered"


@dataclass(frozen=True, slots=True)
class Line:
    """One window: what was decided, and what became of it."""

    key: str
    fire_time: datetime
    timezone: str
    status: str
    lag: timedelta | None
    workflow_id: str
    run_id: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class FileState:
    """How the schedule file stands.

    Attributes:
        since: when its schedules were applied.
        schedules: how many of them go on.
        problems: why it is not applied as it is now; empty while it is good.
    """

    name: str
    since: datetime
    schedules: int
    problems: tuple[str, ...] = ()

    @property
    def trouble(self) -> str:
        """What a broken file means."""
        count = counted(self.schedules, "schedule")
        return f"{self.name} is broken; the last good definitions go on ({count})"


@dataclass(slots=True)
class Board:
    """The windows seen lately, the newest first, and how many came to which end.

    Attributes:
        counts: windows by status; each counts once, under its newest status.
        upcoming: what fires next, told from outside; None before it is known.
        file: how the schedule file stands, told from outside.
    """

    counts: Counter[str] = field(default_factory=Counter)
    upcoming: Sequence[NextFire] | None = None
    file: FileState | None = None
    _lines: dict[str, Line] = field(default_factory=dict)

    @property
    def lines(self) -> list[Line]:
        """The newest fire time first."""
        return sorted(self._lines.values(), key=lambda line: (line.fire_time, line.key))[::-1]

    def hear(self, event: Event) -> None:
        """Take in what a replica tells."""
        match event:
            case Settled(claim, outcome, lag):
                self._settled(claim, outcome, lag)
            case Closed(evidence):
                self._closed(evidence)
            case _:
                pass

    def remember(self, fires: Sequence[Fire], timezones: Mapping[str, str]) -> None:
        """Show what the ledger knows from before; it is not counted."""
        for fire in fires:
            lag = None if fire.lag_ms is None else timedelta(milliseconds=fire.lag_ms)
            self._lines[fire.workflow_id] = Line(
                fire.key, fire.fire_time, timezones.get(fire.key, "UTC"), fire.status, lag,
                fire.workflow_id, fire.run_id, fire.reason or fire.error or "",
            )  # fmt: skip

    def _settled(self, claim: Claim, outcome: Outcome, lag: timedelta) -> None:
        started = outcome.status == "started"
        status = UNANSWERED if outcome.status == "starting" else outcome.status
        before = self._lines.get(claim.workflow_id)
        if started and before and before.status not in {UNANSWERED, "started"}:
            return  # its close was seen first
        note = manner(claim, outcome) if started else outcome.reason or outcome.error or ""
        line = Line(
            claim.key, claim.fire_time, claim.schedule.timezone, status,
            lag if started else None, claim.workflow_id, outcome.run_id, note,
        )  # fmt: skip
        self._count(before, line)

    def _closed(self, evidence: Evidence) -> None:
        before = self._lines.get(evidence.workflow_id)
        if before is None or evidence.closed is None:
            return  # of an earlier session, or scrolled away
        note = evidence.error or before.note
        self._count(before, replace(before, status=evidence.closed, note=note))

    def _count(self, before: Line | None, line: Line) -> None:
        if before:
            self.counts[before.status] -= 1
        self.counts[line.status] += 1
        self._lines[line.workflow_id] = line
        if len(self._lines) > _KEPT:
            del self._lines[self.lines[-1].workflow_id]


def manner(claim: Claim, outcome: Outcome) -> str:
    """Say how a window was started: ``on time``, ``first sight``, ``caught up, …``."""
    words = claim.reason if claim.reason == FIRST_SIGHT else (outcome.timing or "")
    caught_up = f", stands for {claim.missed} missed" if claim.missed else ""
    return words.replace("_", " ") + caught_up
