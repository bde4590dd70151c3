"""Judge of the audit: the windows that one schedule owed, against the rows that it has.

Each owed window needs exactly one row, whose class is one that the history of the schedule allows.
Rows and runs are pushed in, in the order of their fire times; nothing is held but faults, so that
a million windows cost no memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal, Protocol

from engine.audit.evaluator import instant, moment
from engine.audit.history import Chapter, History, OwedWindow, exact
from engine.ledger import Fire, Status

FaultKind = Literal["doubled", "missing", "phantom", "early", "unvouched", "unreadable"]
VerdictWord = Literal["complete"] | FaultKind

WORST: Final[tuple[FaultKind, ...]] = (
    "unreadable",
    "doubled",
    "missing",
    "phantom",
    "early",
    "unvouched",
)
"""Faults in the order in which they name a verdict, the worst first."""

MOST_FAULTS: Final = 100
"""Most faults of one schedule that a report names; the others are counted."""

RAN: Final[frozenset[Status]] = frozenset(
    {"started", "completed", "failed", "cancelled", "terminated", "timed_out"}
)
"""Statuses of a window that has a run."""
_TO_RUN: Final = RAN | {"claimed", "queued", "starting", "unvouched"}
_STOOD_FOR: Final = frozenset({"coalesced", "overload"})
_ORDINARY: Final = frozenset({"on_time", "late"})
_PLANNED: Final = _ORDINARY | {"caught_up"}

_TOLERANCE: Final = 2_000_000
"""How far, in microseconds, Temporal's clock may differ from the ledger's: some run times are its
own."""
_DAY_OFF: Final = 90_000_000_000
"""Windows of a day off are decided together, with the last of the day, which may have 25 hours."""
_RECORDED_LATE: Final = 10_000_000
"""A resume is recorded at most so much after the moment up to which it has decided."""
_SHIFTED: Final = 3_600_000_000
"""A row without a window is called shifted if a missing window is as near as this."""


@dataclass(frozen=True, slots=True)
class AuditFault:
    """A window, or adjacent ones, whose account is wrong.

    Attributes:
        kind: the kind of fault.
        fire_time: the window, or the first of several.
        what: what is wrong, in a sentence.
        windows: how many adjacent windows.
        last_fire_time: the last of them.
        workflow_id: the id of the row or run, if there is one.
    """

    kind: FaultKind
    fire_time: datetime
    what: str
    windows: int = 1
    last_fire_time: datetime | None = None
    workflow_id: str | None = None

    def is_of(self, kind: FaultKind, what: str, workflow_id: str | None) -> bool:
        """Return whether it says the same."""
        return (self.kind, self.what, self.workflow_id) == (kind, what, workflow_id)


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A run of a window, as Temporal has it.

    Attributes:
        workflow_id: the id of its workflow.
        run_id: its own id.
        chain: what it shares with the runs that it continues, and no other run has.
        started_at: by Temporal's clock.
        at: the window that its memo names, as an instant of the evaluator.
    """

    workflow_id: str
    run_id: str
    chain: str
    started_at: datetime
    at: int


@dataclass(frozen=True, slots=True)
class KeyAudit:
    """Verdict on one schedule.

    Attributes:
        verdict: the worst fault, or ``complete``.
        expected: number of windows that it owed.
        statuses: what became of them, in windows by status.
        faults: the first of them, in order of time.
        fault_windows: number of windows of each kind of fault.
        due: windows that are not decided yet, and not late.
        held: windows that wait for the end of a pause, or of being disabled or retired, and those
            after the last one that a limit allows.
        outside: windows whose rows may have left the ledger.
        unchecked: runs that Temporal need not have any more.
        notes: what limits the verdict, a sentence each.
    """

    key: str
    project: str
    verdict: VerdictWord
    expected: int
    statuses: Mapping[str, int]
    faults: tuple[AuditFault, ...] = ()
    fault_windows: Mapping[str, int] = field(default_factory=dict)
    due: int = 0
    held: int = 0
    outside: int = 0
    unchecked: int = 0
    notes: tuple[str, ...] = ()


Runs = dict[int, list[SeenRun]]
"""Runs of one schedule by window."""


@dataclass(slots=True)
class SeenRuns:
    """Runs of the ledger's windows that Temporal has.

    Attributes:
        by_key: the runs of each schedule.
        kept_since: runs that closed before may have left Temporal; None if that is not known.
        notes: what could not be read, a sentence each.
    """

    by_key: dict[str, Runs] = field(default_factory=dict)
    kept_since: datetime | None = None
    notes: tuple[str, ...] = ()

    def of(self, *keys: str) -> Runs:
        """Return the runs of a schedule, by all keys that it has had."""
        found: Runs = {}
        for key in keys:
            for at, runs in self.by_key.get(key, {}).items():
                found[at] = [*found.get(at, ()), *runs]
        return found


class RunSource(Protocol):
    """Reads of the runs of windows, from what started them."""

    async def read(self, ledger_id: str, since: datetime, keys: Sequence[str]) -> SeenRuns:
        """Return the runs of a ledger's windows that began after ``since``."""

    async def knows(self, workflow_id: str) -> bool:
        """Return whether there is a run of this id."""


class KeyJudge:
    """Judge of one schedule between two moments.

    Args:
        history: its definitions and pauses.
        first, last: the stretch of fire times.
        runs: its runs in Temporal; None if Temporal was not asked.
        kept_since: runs that closed before may have left Temporal.

    Attributes:
        unseen: rows whose runs were not among these; the caller asks for each, see ``lost``.
    """

    def __init__(
        self,
        history: History,
        first: datetime,
        last: datetime,
        *,
        runs: Runs | None = None,
        kept_since: datetime | None = None,
    ) -> None:
        self._history, self._first, self._last = history, instant(first), instant(last)
        self._now = instant(history.standing.now)
        self._runs, self._kept_since = runs, kept_since
        self._owed: Iterator[OwedWindow] = history.owed(self._first, self._last)
        self._next = next(self._owed, None)
        self._group: list[Fire] = []
        self._covering: Fire | None = None
        self._statuses: Counter[str] = Counter()
        self._found: list[AuditFault] = []
        self._counts: Counter[str] = Counter()
        self._tally: Counter[str] = Counter()
        self._place = 0
        self.unseen: list[Fire] = []

    # --- input ---

    def push(self, row: Fire) -> None:
        """Take the next row, by fire time and then by series."""
        if self._group and self._group[-1].fire_time != row.fire_time:
            self._judge_group()
        self._group.append(row)

    def lost(self, row: Fire) -> None:
        """Take that Temporal does not know the run of one of ``unseen``."""
        text = f"the ledger has its run as {row.status}, and Temporal does not know it"
        self._fault("missing", instant(row.fire_time), text, row.workflow_id)

    def close(self) -> None:
        """Judge what is left once every row was pushed."""
        if self._group:
            self._judge_group()
        self._pass_until(self._last + 1)
        for at in sorted(self._runs or {}):
            if self._first <= at <= self._last and not self._is_forgotten(at):
                self._stray_runs(at)

    def verdict(self, *notes: str) -> KeyAudit:
        """Return the verdict on everything that was pushed."""
        standing = self._history.standing
        word: VerdictWord = next((kind for kind in WORST if self._counts[kind]), "complete")
        faults = sorted(_with_shifts(self._found), key=lambda each: each.fire_time)
        return KeyAudit(
            standing.key,
            standing.project,
            word,
            self._tally["expected"],
            dict(sorted(self._statuses.items())),
            tuple(faults[:MOST_FAULTS]),
            {kind: self._counts[kind] for kind in WORST if self._counts[kind]},
            self._tally["due"],
            self._tally["held"],
            self._tally["outside"],
            self._tally["unchecked"],
            notes,
        )

    # --- windows without a row ---

    def _pass_until(self, at: int) -> None:
        """Account for owed windows before ``at``, none of which has a row."""
        while self._next is not None and self._next.at < at:
            self._without_row(self._take())

    def _take(self) -> OwedWindow:
        taken = self._next
        if taken is None:
            raise AssertionError("no window is left")
        self._next = next(self._owed, None)
        self._tally["expected"] += 1
        return taken

    def _without_row(self, owed: OwedWindow) -> None:
        at, history = owed.at, self._history
        if self._is_forgotten(at):
            self._tally["outside"] += 1
            return
        held = history.hold_now(owed.chapter.grace) is not None or history.has_ended(owed.chapter)
        if at > history.cursor and held:
            self._tally["held"] += 1
            return
        patience = owed.chapter.grace + (_DAY_OFF if owed.chapter.windows.off(at) else 0)
        if at > history.cursor and at + patience >= self._now:
            self._tally["due"] += 1
            return
        text = "no row accounts for it"
        if at > history.cursor:
            text += "; it is not decided yet, and is older than its grace"
        if ran := self._runs_at(at):
            text += f"; Temporal has its run {ran[0].workflow_id}"
        self._fault("missing", at, text)

    def _is_forgotten(self, at: int) -> bool:
        until = self._history.standing.forgotten_until
        return until is not None and at <= instant(until)

    # --- windows with rows ---

    def _judge_group(self) -> None:
        """Judge the rows of one fire time."""
        group, self._group = self._group, []
        for row in group:
            if row.windows > 1:
                self._judge_range(row)
        alone = [row for row in group if row.windows == 1]
        if not alone:
            return
        at = instant(alone[0].fire_time)
        self._pass_until(at)
        mine = None
        if self._next is not None and self._next.at == at:
            series = self._next.chapter.series
            mine = next((row for row in alone if row.series == series), None)
        if mine is not None:
            self._judge_window(self._take(), mine)
        others = [row for row in alone if row is not mine]
        for row in others:
            self._judge_other(row, mine or self._covering_row(row))

    def _covering_row(self, row: Fire) -> Fire | None:
        before = self._covering
        return before if before and row.fire_time <= before.last_fire_time else None

    def _judge_range(self, row: Fire) -> None:
        """Judge a row of several windows; those outside of the stretch are passed over."""
        first, last = instant(row.fire_time), instant(row.last_fire_time)
        self._pass_until(first)
        if (before := self._covering_row(row)) is not None:
            self._judge_other(row, before)
            return
        self._covering = row
        windows = 0
        while self._next is not None and self._next.at <= last:
            if self._next.chapter.series != row.series:
                break
            windows += 1
            self._judge_window(self._take(), row)
        whole = self._first <= first and last <= self._last
        text = f"its row stands for {row.windows} windows up to {exact(last)}, and"
        if whole and windows < row.windows and not self._is_backfilled(row):
            self._fault("phantom", first, f"{text} only {windows} were owed", row.workflow_id)
        if whole and windows > row.windows:
            self._fault("missing", first, f"{text} {windows} were owed", row.workflow_id)

    def _judge_window(self, owed: OwedWindow, row: Fire) -> None:
        self._statuses[row.status] += 1
        if row.status == "unvouched":
            text = row.reason or "it may or may not have run"
            self._fault("unvouched", owed.at, text, row.workflow_id)
        else:
            for kind, text in class_faults(self._history, owed, row):
                self._fault(kind, owed.at, text, row.workflow_id)
        if self._runs is not None:
            self._compare_runs(owed.at, owed.chapter, row)
        elif row.second_runs:
            names = ", ".join(row.second_runs)
            text = f"besides its run {row.run_id} somebody has started {names} under its id"
            self._fault("doubled", owed.at, text, row.workflow_id)

    def _judge_other(self, row: Fire, beside: Fire | None) -> None:
        """Judge a row that no owed window needs."""
        at = instant(row.fire_time)
        asked_for = self._is_backfilled(row) or self._had_passed(row)
        if beside is not None and row.status in RAN and beside.status in RAN:
            self._fault("doubled", at, _both(row, beside), row.workflow_id)
        elif beside is not None and not asked_for:
            self._fault("phantom", at, _both(row, beside), row.workflow_id)
        elif not asked_for:
            what = "it ran" if row.status in RAN else f"its row is {row.status}"
            why = self._why_no_window(at, row)
            self._fault("phantom", at, f"{what}, and {why}", row.workflow_id)
        if self._runs is not None and row.status in RAN:
            self._runs_at(at)

    def _why_no_window(self, at: int, row: Fire) -> str:
        chapter = self._history.chapter_of(at)
        if chapter is None:
            return "its schedule had not been declared"
        if chapter.windows.is_window(at):
            return f"it belongs to series {row.series}, and {chapter.series} was in force"
        return f"no window opens then by definition {chapter.version}"

    def _is_backfilled(self, row: Fire) -> bool:
        """Return whether a backfill laid it, by the definition that it names."""
        chapter = self._history.version(row.definition_version)
        if row.timing != "backfill":
            return False
        return chapter is None or chapter.windows.is_window(instant(row.fire_time))

    def _had_passed(self, row: Fire) -> bool:
        """Return whether it is a moment that had passed when it was declared."""
        chapter = self._history.version(row.definition_version)
        if chapter is None or not chapter.is_moment or row.status != "expired":
            return False
        return chapter.windows.is_window(instant(row.fire_time))

    # --- runs ---

    def _runs_at(self, at: int) -> list[SeenRun]:
        return self._runs.pop(at // 1000 * 1000, []) if self._runs else []

    def _compare_runs(self, at: int, chapter: Chapter, row: Fire) -> None:
        """Compare the row of a window with the runs that Temporal has of it."""
        runs = self._runs_at(at)
        chains = {run.chain: run for run in runs}
        if len(chains) > 1:
            names = ", ".join(
                sorted(f"{run.workflow_id} ({run.run_id})" for run in chains.values())
            )
            self._fault(
                "doubled", at, f"Temporal has {len(chains)} runs of it: {names}", row.workflow_id
            )
        elif runs and row.status not in _TO_RUN:
            text = f"the ledger has it as {row.status}, and Temporal has its run {runs[0].run_id}"
            self._fault("phantom", at, text, row.workflow_id)
        elif not runs and row.status in RAN and row.windows == 1:
            self._without_run(row)
        begun = min((instant(run.started_at) for run in runs), default=None)
        own = instant(row.started_at) if row.started_at else None
        noticed = own is not None and own < chapter.due(at) - _TOLERANCE
        if begun is not None and begun < chapter.due(at) - _TOLERANCE and not noticed:
            text = f"Temporal began its run at {exact(begun)}, before it was due"
            self._fault("early", at, text, row.workflow_id)

    def _without_run(self, row: Fire) -> None:
        kept = (
            self._kept_since is None or row.closed_at is None or (row.closed_at > self._kept_since)
        )
        if kept:
            self.unseen.append(row)
        else:
            self._tally["unchecked"] += 1

    def _stray_runs(self, at: int) -> None:
        """Report runs of a window that no row accounts for."""
        for run in self._runs_at(at)[:1]:
            text = f"Temporal has its run {run.run_id}, and the ledger has no row of it"
            self._fault("phantom", at, text, run.workflow_id)

    # --- faults ---

    def _fault(self, kind: FaultKind, at: int, what: str, workflow_id: str | None = None) -> None:
        self._counts[kind] += 1
        before = self._found[-1] if self._found else None
        place, self._place = self._place, self._tally["expected"]
        follows = self._place == place + 1
        if before is not None and follows and before.is_of(kind, what, workflow_id):
            self._found[-1] = replace(before, windows=before.windows + 1, last_fire_time=moment(at))
        elif len(self._found) < 10 * MOST_FAULTS:
            self._found.append(AuditFault(kind, moment(at), what, workflow_id=workflow_id))


def _both(row: Fire, beside: Fire) -> str:
    this, other = (f"{each.workflow_id} ({each.status})" for each in (row, beside))
    return f"{this} accounts for it, and so does {other}"


def _with_shifts(faults: Sequence[AuditFault]) -> Iterator[AuditFault]:
    """Yield the faults; a row without a window beside a missing one is reported as shifted."""
    missing = [each for each in faults if each.kind == "missing" and each.windows == 1]
    for fault in faults:
        near = min(missing, key=lambda each: abs(each.fire_time - fault.fire_time), default=None)
        if fault.kind == "phantom" and near is not None:
            by = fault.fire_time - near.fire_time
            if by and abs(by) <= timedelta(microseconds=_SHIFTED):
                text = f"{fault.what}: the window of {exact(instant(near.fire_time))} seems shifted"
                yield replace(fault, what=f"{text} by {by.total_seconds():+g} s")
                continue
        yield fault


# --- classes ---
# Classes that the history of a schedule allows for a window; docs/decisions.md has the rules.


def class_faults(history: History, owed: OwedWindow, row: Fire) -> Iterator[tuple[FaultKind, str]]:
    """Yield what is wrong with the class of a window's row."""
    if row.timing == "backfill":
        return  # an operator asked for it, whatever it was before
    at, chapter = owed
    yield from _beginning(chapter, at, row)
    if row.status in _TO_RUN and row.timing in _PLANNED:
        yield from _wrong_start(history, owed, row)
    elif row.status == "skipped":
        yield from _wrong_skip(history, owed, row)
    elif row.status == "expired" and not chapter.is_moment and chapter.policy != "all":
        age = instant(row.decided_at) - at
        if age < chapter.grace:
            yield "missing", f"it expired {age / 1e6:g} s after its fire time, within its grace"


def _beginning(chapter: Chapter, at: int, row: Fire) -> Iterator[tuple[FaultKind, str]]:
    if row.started_at is not None and instant(row.started_at) < chapter.due(at) - _TOLERANCE:
        yield "early", f"it started at {exact(instant(row.started_at))}, before it was due"
    elif instant(row.decided_at) < at and row.reason_code != "user" and row.status in _TO_RUN:
        yield "early", f"it was claimed at {exact(instant(row.decided_at))}, before its fire time"


def _wrong_start(history: History, owed: OwedWindow, row: Fire) -> Iterator[tuple[FaultKind, str]]:
    at, chapter = owed
    pause = history.pause_at(at)
    if off := chapter.windows.off(at):
        yield "phantom", f"it ran ({row.timing}) although it is excluded: {off}"
    elif at < chapter.shadow_until:
        yield "phantom", f"it ran ({row.timing}) although its schedule was in shadow mode"
    elif row.timing == "caught_up":
        if chapter.policy == "none" and chapter.enabled and pause is None:
            yield "phantom", "it was caught up although catchUp is none"
    elif not chapter.enabled:
        yield "phantom", f"it ran ({row.timing}) although its schedule was disabled"
    elif pause is not None:
        after = instant(row.decided_at) >= pause.ends and at > pause.ends - _RECORDED_LATE
        if not (pause.resumed and after):
            text = f"it ran ({row.timing}) although its schedule was paused since"
            yield "phantom", f"{text} {exact(pause.begins)}"
    elif row.waited_since is not None and chapter.due(at) < instant(row.waited_since):
        text = f"it ran ({row.timing}) as if it had waited for other schedules only, which it did"
        yield "phantom", f"{text} since {exact(instant(row.waited_since))}: it had been missed"


def _wrong_skip(history: History, owed: OwedWindow, row: Fire) -> Iterator[tuple[FaultKind, str]]:
    at, chapter = owed
    code, pause = row.reason_code, history.pause_at(at)
    if row.timing is not None:
        return  # it was to start, and given up before it was sent
    if code == "excluded" and not chapter.windows.off(at):
        yield "missing", "it was skipped as excluded, and no day off covers it"
    elif code == "paused" and pause is None:
        yield "missing", "it was skipped as paused, and no pause is recorded then"
    elif code == "disabled" and chapter.enabled:
        yield "missing", "it was skipped as disabled, and its definition is enabled"
    elif code == "shadow" and at >= chapter.shadow_until:
        yield "missing", "it was skipped as one of shadow mode, and its schedule was not in it"
    elif code == "limit" and chapter.limit is None:
        yield "missing", "it was skipped for a limit, and its definition has none"
    elif code == "retired" and not chapter.retires:
        yield "missing", "it was skipped as retired, and its schedule was not"
    elif code in _STOOD_FOR and chapter.policy != "latest" and chapter.enabled and pause is None:
        yield "missing", f"it was coalesced although catchUp is {chapter.policy}"
