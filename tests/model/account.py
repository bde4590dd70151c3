"""The history of every key as its ledger committed it, and what must be true of it at all times."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engine.ledger import MemoryLedger
from engine.ledger.memory_tables import FireEntry
from engine.ledger.records import ScheduleState
from tests.model.moments import is_excluded, windows
from tests.model.temporal import Run

RUNNING = {"claimed", "starting", "started"}
CLOSED = {"completed", "failed", "cancelled", "terminated", "timed_out"}
NO_RUN = {"skipped", "expired", "rejected", "unvouched"}
STEPS = {
    "claimed": {"starting", "skipped", "started", *CLOSED},
    "queued": {"claimed", "starting", "skipped", "started", *CLOSED},
    "starting": {"started", "rejected", "unvouched", *CLOSED},
    "started": CLOSED,
    # Evidence wins, and a backfill makes up for what was denied.
    **{word: {"started", "claimed", "queued", "starting", *CLOSED} for word in NO_RUN},
    **{word: {"started", *CLOSED} for word in CLOSED},
}


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
    """A pause: ``end`` is None while it lasts; nothing opens in it as an ordinary start."""

    begin: datetime
    end: datetime | None


@dataclass
class Account:
    """Looks at the ledger after whatever may have changed it."""

    ledger: MemoryLedger
    entries: dict[str, dict[str, Any]]
    eras: dict[str, list[Era]] = field(default_factory=dict)
    rests: dict[str, list[Rest]] = field(default_factory=dict)
    states: dict[str, ScheduleState] = field(default_factory=dict)
    fires: dict[int, FireEntry] = field(default_factory=dict)
    policies: dict[str, str] = field(default_factory=dict)
    rows: dict[str, FireEntry] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    forgotten: set[str] = field(default_factory=set)
    commits_lost: bool = False

    def look(self) -> None:
        """Note what is new, and judge it; what is not committed yet is nobody's to see."""
        tables = self.ledger._tables
        if self.ledger._lock.locked():
            return
        for key, row in tables.schedules.items():
            before = self.states.get(key)
            if row.state is not before:
                self._schedule(before, row.state)
                if before is not None:
                    self.policies[key] = before.schedule.overlap
                self.states[key] = row.state
        changed = self._changed()
        for number, was, fire in changed:
            self._fire(number, was, fire)
        self._overlap(changed)

    def _changed(self) -> list[tuple[int, FireEntry | None, FireEntry]]:
        """Note the fires as they are, and return those whose status is another."""
        fires, changed = self.ledger._tables.fires, []
        for number, fire in fires.items():
            before = self.fires.get(number)
            if before is not fire:
                if before is None or before.status != fire.status:
                    changed.append((number, before, fire))
                self.fires[number] = fire
                self.rows[fire.new.workflow_id] = fire
        for number in [*self.fires.keys() - fires.keys()]:
            gone = self.fires.pop(number)  # carved, or no longer skipped
            if self.rows.get(gone.new.workflow_id) is gone:
                del self.rows[gone.new.workflow_id]
        return changed

    def _schedule(self, before: ScheduleState | None, state: ScheduleState) -> None:
        key = state.key
        if before is None or before.definition_version != state.definition_version:
            entry = self.entries[state.digest]
            if before is not None and state.effective_from < before.effective_from:
                raise Broken(f"effective_from of {key} goes back")
            era = Era(state.definition_version, state.series, state.cursor, state.effective_from,
                      entry)  # fmt: skip
            self.eras.setdefault(key, []).append(era)
        if before and before.series == state.series and state.cursor < before.cursor:
            raise Broken(f"the cursor of {key} goes back from {before.cursor} to {state.cursor}")
        was, now_paused = before.pause if before else None, state.pause
        rests = self.rests.setdefault(key, [])
        if now_paused and not (was and was.at == now_paused.at):
            rests.append(Rest(now_paused.at, now_paused.until))
        elif now_paused and was and now_paused.until != was.until:
            rests[-1] = Rest(now_paused.at, now_paused.until)
        elif was and not now_paused:
            end = min(filter(None, [was.until, self.ledger.clock()]))
            rests[-1] = Rest(was.at, end)

    def _fire(self, number: int, before: FireEntry | None, fire: FireEntry) -> None:
        name = fire.new.workflow_id
        word = (fire.reason or "").split(":")[0] if fire.status != "started" else ""
        self.seen[f"{fire.status} {_stable(word)}".strip()] += 1
        if fire.status == "started":
            self.seen[f"started {fire.timing}"] += 1
            if fire.history:
                self.seen[f"started after {fire.history[-1]['status']}"] += 1
        if before is None:
            return
        self.seen[f"{before.status} to {fire.status}"] += 1
        if fire.status not in STEPS[before.status]:
            raise Broken(f"{name} goes from {before.status} to {fire.status}")
        if before.status == "queued" and fire.status in {"claimed", "starting"}:
            self._in_line(number, fire)

    def _in_line(self, number: int, fire: FireEntry) -> None:
        """A queue is first come, first started."""
        if "allow" in self._policies(fire):
            return
        for other, waiting in self.ledger._tables.fires.items():
            if (
                other < number
                and waiting.new.key == fire.new.key
                and waiting.status == "queued"
                and waiting.overlap != "allow"
            ):
                raise Broken(f"{fire.new.workflow_id} jumps the queue: {waiting.new.workflow_id}")

    def _overlap(self, changed: list[Any]) -> None:
        """Nothing begins while another run of its key is open, unless it may."""
        began = {
            number: fire
            for number, before, fire in changed
            if fire.status in {"claimed", "starting"}
            and (before is None or before.status not in RUNNING)
        }
        for number, fire in began.items():
            if "allow" in (own := self._policies(fire)):
                continue
            for other, running in self.ledger._tables.fires.items():
                if (
                    other != number
                    # One that may overlap may have begun after it, in the same commit.
                    and not (other in began and "allow" in self._policies(running))
                    and running.new.key == fire.new.key
                    and running.status in RUNNING
                    and running.lost_at is None
                ):
                    raise Broken(
                        f"{fire.new.workflow_id} ({', '.join(sorted(own))}) begins while"
                        f" {running.new.workflow_id} is {running.status}"
                    )

    def _policies(self, fire: FireEntry) -> set[str]:
        """What it may have kept to: its own, or the schedule's, before and after this commit."""
        key, version = fire.new.key, fire.new.definition_version
        if fire.overlap:
            return {fire.overlap}
        eras = {each.entry.get("overlap", "allow") for each in self.eras[key]
                if each.version == version}  # fmt: skip
        now = self.states[key].schedule.overlap
        return eras | {now, self.policies.get(key, now)}

    def began(self, run: Run) -> None:
        """Judge a run at the moment when it begins to exist."""
        fire = self.rows.get(run.id)
        self.seen["run"] += 1
        if fire is None:
            if not self.commits_lost:
                raise Broken(f"{run.id} runs, and has no row")
            return
        if fire.status in {"claimed", "queued"} and not self.commits_lost:
            raise Broken(f"{run.id} runs, and its row says {fire.status}")
        if fire.kind != "window" or fire.timing == "backfill" or self.commits_lost:
            return
        self._may_start(run, fire)
        self._may_start_now(run, fire)

    def _may_start_now(self, run: Run, fire: FireEntry) -> None:
        pause, now = self.states[fire.new.key].pause, self.ledger.clock()
        if fire.new.fire_time > now:
            raise Broken(f"{run.id} starts before its time {fire.new.fire_time}")
        if pause and (pause.until is None or pause.until > now):
            if fire.starting_at is None or fire.starting_at > pause.at:
                raise Broken(f"{run.id} starts while {fire.new.key} is paused")
            self.seen["sent before the pause"] += 1

    def _may_start(self, run: Run, fire: FireEntry) -> None:
        key, at = fire.new.key, fire.new.fire_time
        era = next(each for each in self.eras[key] if each.version == fire.new.definition_version)
        if at <= era.after or at < era.effective_from:
            raise Broken(f"{run.id} opened before its definition took effect")
        if is_excluded(era.entry, at):
            raise Broken(f"{run.id} is excluded")
        if fire.timing in {"on_time", "late"} and any(
            rest.begin < at and (rest.end is None or at < rest.end) for rest in self.rests[key]
        ):
            raise Broken(f"{run.id} of {at} opened in a pause: {self.rests[key]}")

    def check_runs(self, ever: dict[str, list[str]]) -> None:
        """At most one run of each id, and one id of each window."""
        for name, runs in ever.items():
            if len(runs) > 1 and name not in self.forgotten:
                raise Broken(f"{name} ran {len(runs)} times")

    def check_windows(self, key: str) -> None:
        """Every window up to the cursor has one row; no row stands for a window that is not."""
        state, eras = self.states[key], self.eras[key]
        strays = self._rows(key)
        for era, after in zip(eras, [*eras[1:], None], strict=True):
            end = after.effective_from if after else state.cursor
            for at in windows(era.entry, era.after, end):
                if (era.series, at) not in strays:
                    raise Broken(f"{key}: window {at} of version {era.version} has no row")
                del strays[era.series, at]
        for (series, at), said in strays.items():
            ahead = series == state.series and at > state.cursor
            asked = said.startswith("skipped user") or said.endswith("backfill")
            if not (asked or "declared" in said or self.commits_lost):
                raise Broken(f"{key}: {said} of {at} (ahead: {ahead}), which no definition has")

    def _rows(self, key: str) -> dict[tuple[int, datetime], str]:
        """What is said of each window that any row stands for, by series and fire time."""
        entries = {era.version: era.entry for era in self.eras[key]}
        said: dict[tuple[int, datetime], str] = {}
        for fire in self.ledger._tables.fires.values():
            if fire.new.key != key or fire.kind != "window":
                continue
            first, last, of = fire.new.fire_time, fire.new.last_fire_time, [fire.new.fire_time]
            if fire.new.windows > 1:
                of += windows(entries[fire.new.definition_version], first, last)
            if len(of) != fire.new.windows or of[-1] != last:
                raise Broken(f"{fire.new.workflow_id} says {fire.new.windows} windows of {len(of)}")
            for at in of:
                if (fire.new.series, at) in said:
                    raise Broken(f"{key} has two rows for {at} of series {fire.new.series}")
                said[fire.new.series, at] = f"{fire.status} {fire.reason} {fire.timing}"
        return said


def _stable(word: str) -> str:
    """The part of a reason that is the same for every window."""
    for head in ("coalesced", "caught up", "beyond catchUp.max", "no worker", "may have run"):
        if word.startswith(head):
            return head
    return word if len(word) < 40 else word[:40]
