"""State of the live table of ``sched up``. Pure: callers pass in events and next fires."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import get_args

from engine.cli.output import ASKED_LATER, UNANSWERED, clock, counted, effort_text, shown_status
from engine.ledger import Claim, ClosedStatus, Evidence, Outcome
from engine.runtime.events import Closed, Decided, Event, Settled
from engine.schedules import TICK
from engine.schedules.planner import FIRST_SIGHT
from engine.service import Fire, NextFire

_KEPT = 200
_CLOSED = frozenset(get_args(ClosedStatus))
_MAY_CHANGE = frozenset({"queued", "claimed", "started", UNANSWERED})
_RUNNING = frozenset({"started", "stuck"})
WRONG = frozenset(
    {"failed", "timed_out", "terminated", "rejected", "expired", "unvouched", "stuck"}
)
"""Statuses that may need attention: their lines are kept longer than others."""


@dataclass(frozen=True, slots=True)
class BoardLine:
    """Line of one window, or of a range of windows without a run: its decision or outcome.

    Attributes:
        fire_time: the fire time; for several windows, that of the last one.
        took: the duration of its run, once it has closed.
        effort: how often it and its steps were tried, if more than once.
    """

    key: str
    fire_time: datetime
    timezone: str
    status: str
    lag: timedelta | None
    workflow_id: str
    run_id: str | None
    note: str = ""
    took: timedelta | None = None
    effort: str = ""


@dataclass(frozen=True, slots=True)
class FileState:
    """State of the schedule file.

    Attributes:
        since: when its schedules were applied; None until they are known to be.
        schedules: number of schedules in force.
        problems: why its current content is not applied; empty while it is valid.
        refused: a sentence for each of its keys that is not applied, although the others are.
    """

    name: str
    since: datetime | None
    schedules: int
    problems: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """Sentence about what a broken file means for the running schedules."""
        count = counted(self.schedules, "schedule")
        named = {each.partition(":")[0] for each in self.problems}  # a module may be it
        (name,) = named if len(named) == 1 and min(named).endswith(".py") else (self.name,)
        return f"{name} is broken; the last good definitions stay in force ({count})"


@dataclass(slots=True)
class Board:
    """Recent windows, and counts of windows by status.

    Attributes:
        counts: windows since the start, by status; each counts once, under its latest status.
        upcoming: the next fires; None while they are unknown.
        file: the state of the schedule file; None while it is unknown.
    """

    counts: Counter[str] = field(default_factory=Counter)
    upcoming: Sequence[NextFire] | None = None
    file: FileState | None = None
    _lines: dict[str, BoardLine] = field(default_factory=dict)
    _open: dict[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> list[BoardLine]:
        """Lines, newest fire time first."""
        return sorted(self._lines.values(), key=lambda line: (line.fire_time, line.key))[::-1]

    def foremost(self, room: int) -> tuple[list[BoardLine], list[BoardLine]]:
        """Return the newest lines, and older lines of windows that went wrong.

        The latter fill at most a third of the room, plus one row for a heading.
        """
        lines = self.lines
        wrong = [number for number, line in enumerate(lines) if line.status in WRONG]
        for newest in range(min(room, len(lines)), 0, -1):
            older = [number for number in wrong if number >= newest][: room // 3]
            if newest + len(older) + bool(older) <= room:
                return lines[:newest], [lines[number] for number in older]
        return lines[:room], []

    def on_event(self, event: Event) -> None:
        """Process an event of the replica."""
        match event:
            case Settled(claim, outcome, lag):
                self._settled(claim, outcome, lag)
            case Decided():
                self._decided(event)
            case Closed(evidence):
                self._closed(evidence)
            case _:
                pass

    def set_file(self, file: FileState) -> None:
        """Set the state of the schedule file; if nothing was to fire, that is now unknown."""
        self.file, self.upcoming = file, self.upcoming or None

    def expect(self, upcoming: Sequence[NextFire]) -> None:
        """Set the next fires as read from the ledger.

        An empty list counts only once the file is applied, or is broken and will not be.
        """
        known = self.file is None or self.file.since or self.file.problems
        self.upcoming = upcoming if upcoming or known else None

    def remember(self, fires: Sequence[Fire], timezones: Mapping[str, str]) -> None:
        """Add fires from before the start; they are not counted."""
        for fire in fires:
            lag = None
            if fire.lag_ms is not None and fire.timing not in ASKED_LATER:
                lag = timedelta(milliseconds=fire.lag_ms)
            timezone = timezones.get(fire.key, "UTC")
            note = fire.error or fire.reason or ""
            self._lines[fire.workflow_id] = BoardLine(
                fire.key,
                fire.last_fire_time,
                timezone,
                fire.status,
                lag,
                fire.workflow_id,
                fire.run_id,
                _several(fire.windows, fire.fire_time, timezone) + note,
            )

    def learn(self, fires: Sequence[Fire]) -> None:
        """Add what the ledger knows of runs: of closed ones the effort, of open ones if stuck."""
        for fire in fires:
            line = self._lines.get(fire.workflow_id)
            if line and line.status in _RUNNING and fire.status == "started":
                self._lines[fire.workflow_id] = replace(line, status=shown_status(fire))
            elif line and line.status == fire.status and fire.duration_ms is not None:
                took = timedelta(milliseconds=fire.duration_ms)
                effort = effort_text(fire.tries, fire.step_retries)
                self._lines[fire.workflow_id] = replace(line, took=took, effort=effort)

    def _settled(self, claim: Claim, outcome: Outcome, lag: timedelta) -> None:
        before = self._lines.get(claim.workflow_id)
        if before and before.status in _CLOSED:
            return  # the close event came first
        started = outcome.status == "started"
        status = UNANSWERED if outcome.status == "starting" else outcome.status
        note = manner(claim, outcome) if started else outcome.reason or outcome.error or ""
        asked_later = outcome.timing in ASKED_LATER
        self._count(claim.workflow_id, status)
        self._move_on(claim)
        self._keep(
            BoardLine(
                claim.key,
                claim.fire_time,
                claim.schedule.timezone,
                status,
                lag if started and not asked_later else None,
                claim.workflow_id,
                outcome.run_id,
                note,
            )
        )

    def _decided(self, event: Decided) -> None:
        decision = event.decision
        first = decision.window
        if decision.windows == 1:
            self._count(event.workflow_id, decision.verdict)
        else:
            self.counts[decision.verdict] += decision.windows
        self._keep(
            BoardLine(
                first.key,
                decision.last or first.fire_time,
                event.timezone,
                decision.verdict,
                None,
                event.workflow_id,
                None,
                _several(decision.windows, first.fire_time, event.timezone)
                + (decision.reason or ""),
            )
        )

    def _move_on(self, claim: Claim) -> None:
        """Replace a started window in the next fires before the ledger is read again."""
        if any(
            fire.key == claim.key and fire.fire_time <= claim.fire_time
            for fire in self.upcoming or ()
        ):
            after = claim.schedule.first_start(claim.fire_time + TICK)
            rest = [fire for fire in self.upcoming or () if fire.key != claim.key]
            if after:
                rest.append(NextFire(claim.key, after, claim.schedule.timezone))
            self.upcoming = sorted(rest, key=lambda fire: (fire.fire_time, fire.key))

    def _closed(self, evidence: Evidence) -> None:
        if evidence.closed is None:
            return
        if evidence.workflow_id in self._open:  # not a run of an earlier session
            self._count(evidence.workflow_id, evidence.closed)
        before = self._lines.get(evidence.workflow_id)
        if before:
            note = evidence.error or before.note
            took = evidence.closed_at - evidence.started_at if evidence.closed_at else None
            effort = effort_text(evidence.tries, evidence.step_retries)
            self._keep(replace(before, status=evidence.closed, note=note, took=took, effort=effort))

    def _count(self, workflow_id: str, status: str) -> None:
        """Count a window under its new status; one that has ended is not tracked further."""
        before = self._open.pop(workflow_id, None)
        if before:
            self.counts[before] -= 1
        self.counts[status] += 1
        if status in _MAY_CHANGE:
            self._open[workflow_id] = status

    def _keep(self, line: BoardLine) -> None:
        self._lines[line.workflow_id] = line
        if len(self._lines) > 2 * _KEPT:  # not every time: a thousand lines may come at once
            kept = [line for part in self.foremost(_KEPT) for line in part]
            self._lines = {each.workflow_id: each for each in kept}


def _several(windows: int, first: datetime, timezone: str) -> str:
    """Return a note that a line stands for several windows; empty for one."""
    since = clock(first, timezone, seconds=True)
    return f"{windows} windows since {since}: " if windows > 1 else ""


def manner(claim: Claim, outcome: Outcome) -> str:
    """Return how a window was started: ``on time``, ``first sight``, ``caught up, …``."""
    timing = outcome.timing
    words = claim.reason if claim.reason == FIRST_SIGHT else (timing or "")
    caught_up = f", stands for {claim.missed} missed" if claim.missed else ""
    return words.replace("_", " ") + caught_up
