"""Comparison of recorded windows with the runs that another scheduler has started. Pure.

A schedule in shadow mode records its windows and starts none; the other scheduler starts them. Once
the schedule is live, it is the other way round. Each run of the other one belongs to one window,
and each window has one run, by one of the two.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, Literal, Protocol

from engine.ledger import SURELY_NOT_RUN, Fire
from engine.schedules import TICK, Schedule

DifferenceKind = Literal["only_ours", "only_theirs", "doubled"]
SourceKind = Literal["temporal_schedule", "workflow_type", "id_prefix", "log"]


@dataclass(frozen=True, slots=True)
class TheirSource:
    """Origin of the runs to compare with.

    Attributes:
        kind: what they have in common.
        name: the ID of the native Temporal Schedule that started them, their workflow type,
            what their workflow ids begin with, or the file of the log that has them.
    """

    kind: SourceKind
    name: str

    def __str__(self) -> str:
        words = self.kind.replace("_", " ").replace("temporal", "Temporal")
        return f"{words} {self.name}"


@dataclass(frozen=True, slots=True)
class TheirRun:
    """A run that another scheduler has started.

    Attributes:
        at: the moment it was for: as the native schedule names it, otherwise when it began.
        closed_at: when it closed; None while it is open.
    """

    at: datetime
    workflow_id: str
    started_at: datetime
    closed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TheirRuns:
    """Runs of a source.

    Attributes:
        kept_since: runs that closed before may have left Temporal; None if that is not known.
        notes: what is to be known of them, a sentence each.
        is_unknown: whether neither the source nor a run of it is known.
    """

    runs: Sequence[TheirRun]
    kept_since: datetime | None = None
    notes: tuple[str, ...] = ()
    is_unknown: bool = False


class TheirStarts(Protocol):
    """Reads of the runs that another scheduler has started."""

    async def read(self, source: TheirSource, since: datetime, until: datetime) -> TheirRuns:
        """Return the runs for moments in ``since <= t <= until``, by time."""


_LOGGED: Final = re.compile(
    r"\s*(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d))"
)


class LoggedStarts:
    """Runs in the log of a scheduler, which Temporal does not know: one for each line.

    A line begins with a moment and its offset, as `journalctl -o short-iso` writes it.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = [line for line in lines if line.strip()]

    async def read(self, source: TheirSource, since: datetime, until: datetime) -> TheirRuns:
        """Return the runs for moments in ``since <= t <= until``, by time."""
        begins = [_LOGGED.match(line) for line in self._lines]
        moments = [datetime.fromisoformat(each[1]) for each in begins if each]
        runs = [
            TheirRun(at, f"{source.name}: {at.isoformat()}", at, at)
            for at in sorted(moments)
            if since <= at <= until
        ]
        others = len(begins) - len(moments)
        notes = (
            f"lines of {source.name} that do not begin like 2026-11-25T02:00:01+01:00: {others}",
        )
        return TheirRuns(runs, notes=notes if others else (), is_unknown=not moments)


@dataclass(frozen=True, slots=True)
class NativeState:
    """State of a native schedule.

    Attributes:
        ends_at: it starts nothing for a moment after that; None is never.
        paused: whether it starts nothing now, with its note.
        has_jitter: whether it delays its runs at random.
        is_limited: whether it ends by itself after a number of runs.
        next_times: its next runs, some of them.
    """

    ends_at: datetime | None
    paused: bool
    note: str | None
    has_jitter: bool
    is_limited: bool
    next_times: Sequence[datetime]


@dataclass(frozen=True, slots=True)
class OurWindow:
    """A window of ours: one of shadow mode, one that has or may get a run, or one without.

    Attributes:
        row: the row that accounts for it, alone or with others.
    """

    at: datetime
    row: Fire

    @property
    def in_shadow(self) -> bool:
        """Whether it was left to the other scheduler."""
        return self.row.reason_code == "shadow"

    @property
    def is_owed(self) -> bool:
        """Whether one of the two was to run it."""
        return self.in_shadow or self.row.status not in SURELY_NOT_RUN


@dataclass(frozen=True, slots=True)
class Difference:
    """A window or run that the other side lacks, or a window that both sides have run.

    Attributes:
        kind: ``only_ours``, ``only_theirs`` or ``doubled``.
        at: the window, or the moment of the run.
        workflow_id: the run's, where there is one.
        what: what is different, in a sentence.
    """

    kind: DifferenceKind
    at: datetime
    workflow_id: str | None
    what: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of comparing one schedule.

    Attributes:
        since, until: the stretch that was compared, both included.
        equal: number of windows in shadow mode that the other scheduler has run.
        ours: number of windows that ran here, and not there.
        held: number of windows in shadow mode that neither has run, because a run of the other
            scheduler was open and ``overlap`` is not ``allow``.
        notes: what limits the result, a sentence each.
        alone: whether windows in shadow mode could be compared with nothing, because no schedule
            and no run of the other scheduler is known.
    """

    key: str
    project: str
    source: TheirSource
    since: datetime
    until: datetime
    equal: int
    ours: int
    held: int
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()
    alone: bool = False

    @property
    def is_equal(self) -> bool:
        """Whether each window had one run, by one of the two."""
        return not (self.differences or self.alone)

    @property
    def only_ours(self) -> int:
        """Number of windows whose run the other scheduler has not."""
        return self.count("only_ours")

    @property
    def only_theirs(self) -> int:
        """Number of their runs that are of no window."""
        return self.count("only_theirs")

    @property
    def doubled(self) -> int:
        """Number of windows that have two runs."""
        return self.count("doubled")

    def count(self, kind: DifferenceKind) -> int:
        """Return the number of differences of one kind."""
        return sum(each.kind == kind for each in self.differences)


def windows_of(
    rows: Iterable[Fire], definitions: dict[int, Schedule], since: datetime, until: datetime
) -> Iterator[OurWindow]:
    """Yield the windows in ``since <= t <= until`` that rows account for, by fire time.

    Args:
        rows: by fire time.
        definitions: those that decided ranges, by version.
        since: the start of the stretch.
        until: its end.
    """
    found = []
    for row in rows:
        if row.windows == 1:
            found.append(OurWindow(row.fire_time, row))
            continue
        spec = definitions[row.definition_version].spec
        begin, end = max(row.fire_time, since), min(row.last_fire_time, until)
        found += [OurWindow(at, row) for at in spec.fires(begin - TICK, end)]
    yield from sorted(found, key=lambda each: each.at)


def compare(
    schedule: Schedule,
    project: str,
    source: TheirSource,
    ours: Sequence[OurWindow],
    theirs: TheirRuns,
    *,
    since: datetime,
    until: datetime,
    tolerance: timedelta,
    beside: Iterable[datetime] = (),
) -> Comparison:
    """Compare windows with runs.

    A run belongs to the nearest window within the tolerance, which is limited to less than half the
    distance between two windows, so that no run fits two of them.

    Args:
        schedule: its present definition.
        project: its project.
        source: where the runs come from.
        ours: every window of the stretch, and those within the tolerance around it, by time.
        theirs: the same of the runs.
        since: the start of the stretch.
        until: its end.
        tolerance: how far a run may be from its window.
        beside: windows of other schedules with the same source, to which its other runs belong.
    """
    others = sorted(beside)
    near = _narrowed(tolerance, sorted([*(each.at for each in ours), *others]))
    runs = sorted(theirs.runs, key=lambda each: (each.at, each.workflow_id))
    matched, left = _matched(ours, runs, near)
    counts, found = Counter[str](), list[Difference]()
    for window in ours:
        if not since <= window.at <= until or not window.is_owed:
            continue
        run = matched.get(window.at)
        if run is not None and window.in_shadow:
            counts["equal"] += 1
        elif run is not None:
            text = f"{window.row.workflow_id} ran here, and {run.workflow_id} there"
            found.append(Difference("doubled", window.at, window.row.workflow_id, text))
        elif not window.in_shadow:
            counts["ours"] += 1
        elif theirs.is_unknown:
            counts["alone"] += 1
        elif (blocking := _open_at(runs, window.at)) and schedule.overlap != "allow":
            counts["held"] += 1
        else:
            found.append(_lacking(window, blocking))
    found += [
        _surplus(run, ours, near)
        for run in left
        if since <= run.at <= until and not _is_near(others, run.at, near)
    ]
    return Comparison(
        schedule.key,
        project,
        source,
        since,
        until,
        counts["equal"],
        counts["ours"],
        counts["held"],
        tuple(sorted(found, key=lambda each: (each.at, each.kind))),
        theirs.notes,
        counts["alone"] > 0 or (theirs.is_unknown and not counts["ours"]),
    )


def _narrowed(tolerance: timedelta, moments: Sequence[datetime]) -> timedelta:
    gaps = [after - before for before, after in pairwise(moments) if after > before]
    return min(tolerance, min(gaps) / 2 - TICK) if gaps else tolerance


def _is_near(moments: Sequence[datetime], at: datetime, near: timedelta) -> bool:
    """Return whether one of the moments, which are in order, is so near."""
    place = bisect_left(moments, at - near)
    return place < len(moments) and moments[place] <= at + near


def _matched(
    ours: Sequence[OurWindow], runs: Sequence[TheirRun], near: timedelta
) -> tuple[dict[datetime, TheirRun], list[TheirRun]]:
    """Return the run of each window that has one, and the runs that are left."""
    matched: dict[datetime, TheirRun] = {}
    left: list[TheirRun] = []
    owed = [each for each in ours if each.is_owed]
    place = 0
    for run in runs:
        while place < len(owed) and owed[place].at < run.at - near:
            place += 1
        fits = place < len(owed) and owed[place].at <= run.at + near
        if fits and owed[place].at not in matched:
            matched[owed[place].at] = run
        else:
            left.append(run)
    return matched, left


def _open_at(runs: Sequence[TheirRun], at: datetime) -> TheirRun | None:
    """Return a run of an earlier moment that was open then."""
    for run in runs:
        if run.started_at < at and (run.closed_at is None or run.closed_at >= at):
            return run
    return None


def _lacking(window: OurWindow, blocking: TheirRun | None) -> Difference:
    text = "no run was started for it"
    text += f"; {blocking.workflow_id} was still open then" if blocking else ""
    return Difference("only_ours", window.at, None, text)


def _surplus(run: TheirRun, ours: Sequence[OurWindow], near: timedelta) -> Difference:
    beside = next((each for each in ours if abs(each.at - run.at) <= near), None)
    if beside is None:
        text = "no window opens then"
    elif beside.is_owed:
        text = "it is one more run of the same window"
    else:
        text = f"the window is {beside.row.status} here: {beside.row.reason}"
    return Difference("only_theirs", run.at, run.workflow_id, text)
