"""The history of every key as its ledger committed it: what the laws are laws about.

The laws themselves: of schedules and rows in ``row_laws``, of runs in ``run_laws``, of windows in
``window_laws``. None is raised where it is broken: the engine catches what its calls raise. What is
wrong is noted in ``troubles``, and whoever drives the world raises it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from engine.ledger.memory.tables import FireEntry

from engine.ledger import MemoryLedger
from engine.ledger.records import Backfill
from engine.schedules.planner.decisions import ScheduleState
from tests.model import backfill_laws

if TYPE_CHECKING:
    from tests.model.server import Server


class Broken(AssertionError):
    """A promise that was not kept."""


@dataclass(frozen=True)
class Era:
    """One definition of a key: it owns its windows after ``after``, until the next one begins."""

    version: int
    series: int
    after: datetime
    effective_from: datetime
    entry: dict[str, Any]


@dataclass(frozen=True)
class Rest:
    """A pause: ``end`` is None while it lasts. ``made_up``: its windows are wanted after all.

    Somebody ended it between ``end`` and ``over``: in the transaction of which the commit was seen.
    """

    begin: datetime
    end: datetime | None
    over: datetime | None
    made_up: bool = False


@dataclass
class Look:
    """What one commit changed.

    Attributes:
        opened: the ledger's clock when the transaction began, or the latest one that could be it.
        verbs: keys that somebody changed: what such a commit decides, it decides unseen (L3).
        carved: keys of which a row became several: those were decided before.
        fires: rows that are new, or have another status: number, before, after.
    """

    opened: datetime
    verbs: set[str] = field(default_factory=set)
    carved: set[str] = field(default_factory=set)
    fires: list[tuple[int, FireEntry | None, FireEntry]] = field(default_factory=list)


class Touched(dict[int, FireEntry]):
    """The table of fires, which remembers which rows somebody wrote since the last look."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: set[int] = set()

    def __setitem__(self, number: int, fire: FireEntry) -> None:
        self.touched.add(number)
        super().__setitem__(number, fire)

    def __delitem__(self, number: int) -> None:
        self.touched.add(number)
        super().__delitem__(number)

    def pop(self, number: int, *default: Any) -> Any:
        self.touched.add(number)
        return super().pop(number, *default)


@dataclass
class Account:
    """Looks at the ledger after whatever may have changed it."""

    ledger: MemoryLedger
    entries: dict[str, dict[str, Any]]
    troubles: list[str]
    judge_state: Callable[[Account, ScheduleState | None, ScheduleState, Look], None]
    judge_fires: Callable[[Account, Look], None]
    server: Server = field(init=False)
    eras: dict[str, list[Era]] = field(default_factory=dict)
    rests: dict[str, list[Rest]] = field(default_factory=dict)
    states: dict[str, ScheduleState] = field(default_factory=dict)
    fires: dict[int, FireEntry] = field(default_factory=dict)
    backfills: dict[int, Backfill] = field(default_factory=dict)
    policies: dict[str, str] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    rows: dict[str, FireEntry] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    excused: dict[str, int] = field(default_factory=dict)
    """Of which ids, how many runs there may be: one memory was lost while the other was unsure."""
    lost: set[str] = field(default_factory=set)
    """Ids whose rows a failover took, or took back to what they were."""
    believed_until: datetime | None = None
    promoted: set[str] = field(default_factory=set)
    """Ids of runs that waited in a queue, where a spread counts no more."""
    """A replica had asked Temporal for its runs before the ledger lost what it booked of them."""
    looks: int = 0
    """What came before what, whatever the clocks say."""
    paused_in: dict[str, int] = field(default_factory=dict)
    """In which look a key was seen to be paused."""
    sent_in: dict[str, int] = field(default_factory=dict)
    """In which look a fire was seen to be on its way, by the id of its run."""
    opened: datetime | None = None
    latest: datetime | None = None
    """The furthest that the ledger's clock ever was."""
    stepped: bool = False
    distrusts: Callable[[str], bool] = lambda _: False
    """Whether this replica knows, or should know, that the ledger's clock was set."""

    def __post_init__(self) -> None:
        self.fires_table = self.ledger._tables.fires = Touched()

    def broken(self, text: str) -> None:
        self.troubles.append(text)

    def now(self) -> datetime:
        """The ledger's clock."""
        now = self.ledger.clock()
        self.latest = max(self.latest or now, now)
        return now

    def begun(self) -> None:
        """A transaction has its locks."""
        self.opened = self.now()

    def look(self) -> None:
        """Note what is new, and judge it; what is not committed yet is nobody's to see."""
        if self.ledger._lock.locked():
            return
        self.looks += 1
        look = Look(min(self.opened or self.now(), self.now()))
        for key, row in self.ledger._tables.schedules.items():
            before = self.states.get(key)
            if row.state is not before:
                self._schedule(before, row.state, look)
                if before is not None:
                    self.policies[key] = before.schedule.overlap
                    self.places[key] = self.limit(before)
                self.states[key] = row.state
        look.fires = self._changed(look)
        for _, was, fire in look.fires:
            self._count(was, fire)
            if fire.status == "starting" and (was is None or was.status != "starting"):
                self.sent_in[fire.workflow_id] = self.looks
        self.judge_fires(self, look)
        backfill_laws.check(self)

    def _changed(self, look: Look) -> list[tuple[int, FireEntry | None, FireEntry]]:
        """Note the fires as they are, and return those whose status or run is another."""
        table, changed = self.fires_table, []
        for number in sorted(table.touched):
            before, fire = self.fires.get(number), table.get(number)
            if fire is None:
                if before is None:
                    continue
                gone = self.fires.pop(number)  # carved, or no longer skipped
                look.carved.add(gone.key)
                if self.rows.get(gone.workflow_id) is gone:
                    del self.rows[gone.workflow_id]
            elif before is not fire:
                if before is None or (before.status, before.run_id) != (fire.status, fire.run_id):
                    changed.append((number, before, fire))
                self.fires[number] = fire
                self.rows[fire.workflow_id] = fire
        table.touched.clear()
        return changed

    def _schedule(self, before: ScheduleState | None, state: ScheduleState, look: Look) -> None:
        key = state.key
        self.judge_state(self, before, state, look)
        if before is None or before.definition_version != state.definition_version:
            look.verbs.add(key)
            era = Era(state.definition_version, state.series, state.cursor, state.effective_from,
                      self.entries[state.digest])  # fmt: skip
            self.eras.setdefault(key, []).append(era)
        if before and (before.pause, before.retired_at) != (state.pause, state.retired_at):
            look.verbs.add(key)
        self._rest(before, state, look)

    def _rest(self, before: ScheduleState | None, state: ScheduleState, look: Look) -> None:
        was, now_paused = before.pause if before else None, state.pause
        rests = self.rests.setdefault(state.key, [])
        if now_paused and not (was and was.at == now_paused.at):
            self.paused_in[state.key] = self.looks
            rests.append(Rest(now_paused.at, now_paused.until, now_paused.until))
        elif now_paused and was and now_paused.until != was.until:
            rests[-1] = replace(rests[-1], end=now_paused.until, over=now_paused.until)
        elif was and not now_paused:
            end, over = (min(was.until or moment, moment) for moment in (look.opened, self.now()))
            rests[-1] = replace(rests[-1], end=end, over=over)
        said = self.eras[state.key][-1].entry.get("catchUp", {}).get("pause", "none")
        if rests and said != "none" and (was or now_paused):
            rests[-1] = replace(rests[-1], made_up=True)

    def limit(self, state: ScheduleState) -> int:
        """How many runs of a key may be open, by its definition."""
        most: int = self.entries[state.digest].get("maxConcurrentRuns", 1)
        return most

    def on_resume(self, key: str) -> None:
        """Somebody wants what a pause skips."""
        if rests := self.rests.get(key):
            rests[-1] = replace(rests[-1], made_up=True)

    def era(self, fire: FireEntry) -> Era:
        """The definition that a fire was decided under."""
        version = fire.definition_version
        return next(each for each in self.eras[fire.key] if each.version == version)

    def _count(self, before: FireEntry | None, fire: FireEntry) -> None:
        word = (fire.reason or "").split(":")[0] if fire.status != "started" else ""
        self.seen[f"{fire.status} {_stable(word)}".strip()] += 1
        if fire.status == "started":
            self.seen[f"started {fire.timing}"] += 1
        if fire.run_id and fire.history:
            self.seen[f"started after {fire.history[-1]['status']}"] += 1
        if before is not None and before.status != fire.status:
            self.seen[f"{before.status} to {fire.status}"] += 1


def _stable(word: str) -> str:
    """The part of a reason that is the same for every window."""
    for head in ("coalesced", "caught up", "beyond catchUp.max", "no worker", "may have run"):
        if word.startswith(head):
            return head
    return word if len(word) < 40 else word[:40]
