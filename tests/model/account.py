"""The history of every key as its ledger committed it: what the laws are laws about.

The laws themselves: of schedules and rows in ``row_laws``, of runs in ``run_laws``, of windows in
``window_laws``. None is raised where it is broken: the engine catches what its calls raise. What is
wrong is noted in ``troubles``, and whoever drives the world raises it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from engine.ledger.records import Backfill
from engine.schedules import Schedule
from engine.schedules.planner import ScheduleState
from tests.bridge import Commit
from tests.model import backfill_laws
from tests.model.rows import TABLES, FireRow, Found, Reader, state_of

if TYPE_CHECKING:
    from tests.model.server import Server


DENIED = frozenset({"skipped", "expired", "rejected", "unvouched"})


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
        written: rows that are new, or of which anything has changed: before, after.
    """

    opened: datetime
    verbs: set[str] = field(default_factory=set)
    carved: set[str] = field(default_factory=set)
    fires: list[tuple[int, FireRow | None, FireRow]] = field(default_factory=list)
    written: list[tuple[FireRow | None, FireRow]] = field(default_factory=list)


@dataclass
class Account:
    """Looks at each commit. What is not committed yet is nobody's to see."""

    clock: Callable[[], datetime]
    entries: dict[str, dict[str, Any]]
    troubles: list[str]
    judge_state: Callable[[Account, ScheduleState | None, ScheduleState, Look], None]
    judge_fires: Callable[[Account, Look], None]
    judge_writes: Callable[[Account, Look, Commit], None]
    server: Server = field(init=False)
    eras: dict[str, list[Era]] = field(default_factory=dict)
    rests: dict[str, list[Rest]] = field(default_factory=dict)
    states: dict[str, ScheduleState] = field(default_factory=dict)
    fires: dict[int, FireRow] = field(default_factory=dict)
    backfills: dict[int, Backfill] = field(default_factory=dict)
    declared: dict[str, Schedule] = field(default_factory=dict)
    """By digest, what files have declared."""
    errors: dict[str, str | None] = field(default_factory=dict)
    """Why a key could not be planned."""
    shown_to_run: dict[int, datetime] = field(default_factory=dict)
    """When a run was booked that the ledger had not begun, or had lost: that takes no lock."""
    turns: dict[str, datetime] = field(default_factory=dict)
    """By the id of its run, when a start is due that waits for its turn."""
    policies: dict[str, str] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    rows: dict[str, FireRow] = field(default_factory=dict)
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
    latest: datetime | None = None
    """The furthest that the ledger's clock ever was."""
    stepped: bool = False
    distrusts: Callable[[str], bool] = lambda _: False
    """Whether this replica knows, or should know, that the ledger's clock was set."""

    def __post_init__(self) -> None:
        self._reader, self.tables = Reader(), TABLES

    def broken(self, text: str) -> None:
        self.troubles.append(text)

    def now(self) -> datetime:
        """The ledger's clock."""
        now = self.clock()
        self.latest = max(self.latest or now, now)
        return now

    async def read(
        self, connection: asyncpg.Connection[Any], namespace: str, tables: AbstractSet[str]
    ) -> Found:
        """Read what a commit is about to change."""
        return await self._reader.read(connection, namespace, tables)

    def note(self, found: Found, commit: Commit) -> None:
        """Note what is new, and judge it."""
        self.looks += 1
        look = Look(min(commit.opened, self.now()))
        for row in found.schedules:
            self.errors[row["key"]] = row["error"]
            before, state = self.states.get(row["key"]), state_of(row, self.declared)
            if state != before:
                self._schedule(before, state, look)
                if before is not None:
                    self.policies[state.key] = before.schedule.overlap
                    self.places[state.key] = self.limit(before)
                self.states[state.key] = state
        look.fires = self._changed(found, look, commit)
        for _, was, fire in look.fires:
            self._count(was, fire)
            if fire.status == "starting" and (was is None or was.status != "starting"):
                self.sent_in[fire.workflow_id] = self.looks
        self.judge_fires(self, look)
        backfill_laws.check(self, found.backfills)

    def _changed(
        self, found: Found, look: Look, commit: Commit
    ) -> list[tuple[int, FireRow | None, FireRow]]:
        """Note the fires as they are, and return those whose status or run is another."""
        changed = []
        for number in self.fires.keys() - (self.fires if found.there is None else found.there):
            gone = self.fires.pop(number)  # carved, or no longer skipped
            look.carved.add(gone.key)
            if self.rows.get(gone.workflow_id) is gone:
                del self.rows[gone.workflow_id]
        for fire in found.fires:
            number = fire.fire_id
            before = self.fires.get(number)
            if before == fire:
                continue
            if before is None or (before.status, before.run_id) != (fire.status, fire.run_id):
                changed.append((number, before, fire))
            if fire.status == "started" and (before is None or before.status in DENIED):
                self.shown_to_run[number] = self.now()
            if before is None and fire.status == "claimed" and fire.lease_until:
                self.turns[fire.workflow_id] = fire.lease_until
            look.written.append((before, fire))
            self.fires[number] = fire
            self.rows[fire.workflow_id] = fire
        self.judge_writes(self, look, commit)
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

    def era(self, fire: FireRow) -> Era:
        """The definition that a fire was decided under."""
        version = fire.definition_version
        return next(each for each in self.eras[fire.key] if each.version == version)

    def _count(self, before: FireRow | None, fire: FireRow) -> None:
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
