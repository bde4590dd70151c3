"""A small account that breaks no law, written by hand: what the tests of the laws tamper with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.nemesis.account import (
    Account,
    Action,
    Calm,
    Definition,
    Ending,
    Fault,
    Note,
    Row,
    Run,
    Schedule,
    Stillness,
    Verb,
)
from tests.nemesis.windows import bucket

BEGIN = datetime(2026, 1, 5, 10, tzinfo=UTC)
END = 100
"""Seconds after which everything has come to rest."""

EVERY = 10_000


def after(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


@dataclass
class Maker:
    """Writes rows, runs and verbs into one account."""

    account: Account = field(
        default_factory=lambda: Account(7, after(END + 20), queues={"narrow": 2})
    )

    def declares(self, key: str, **entry: Any) -> None:
        """Declare a key, seen first when its first window opens."""
        said = {"key": key, "workflow": "w", "everyMs": EVERY, **entry}
        self.account.definitions.append(Definition(key, 1, 1, said, BEGIN, BEGIN, "nemesis-0"))
        self.account.schedules.append(Schedule(key, 1, after(60), "file", enabled=True))

    def decides(self, key: str, second: float, status: str, **more: Any) -> Row:
        """Write the row of the window that opens at this second."""
        at = after(second)
        entry = next(each.entry for each in self.account.definitions if each.key == key)
        number = more.pop("bucket", bucket(entry, at))
        said: dict[str, Any] = {
            "number": len(self.account.rows), "key": key, "series": 1, "bucket": number,
            "fire_time": at, "windows": 1, "last_fire_time": at, "kind": "window",
            "workflow_id": f"sched:{key}:{number}", "run_id": None, "status": status,
            "reason": None, "timing": None, "definition_version": 1,
            "decided_at": after(second + 0.1), "starting_at": None, "started_at": None,
            "closed_at": None, "lease_until": None, "overlap": None, "stop": None, "attempts": 0,
            "error": None,
        }  # fmt: skip
        row = Row(**{**said, **more})
        self.account.rows.append(row)
        return row

    def runs(
        self, key: str, second: float, begin: float, end: float, status: str = "completed",
        **more: Any,
    ) -> Row:  # fmt: skip
        """Write a row and its run, which lasts from ``begin`` to ``end`` and has one effect."""
        timing = more.pop("timing", "on_time")
        row = self.decides(key, second, status, timing=timing, attempts=1, **more)
        row.run_id = f"run-{row.number}"
        row.starting_at, row.started_at = after(begin - 0.1), after(begin)
        row.closed_at = after(end)
        fire = {"key": key, "series": row.series, "bucket": row.bucket}
        run = Run(
            row.workflow_id, row.run_id, row.run_id, "w@1", status, after(begin), after(end),
            fire, ["effect/1"],
        )  # fmt: skip
        self.account.runs.append(run)
        self.notes(run, begin, end)
        return row

    def notes(self, run: Run, begin: float, end: float, queue: str | None = None) -> Note:
        note = Note(
            1, "effect", queue, run.workflow_id, run.run_id, "effect/1", 1,
            f"{run.first_run_id}/effect/1", begin, end,
        )  # fmt: skip
        self.account.notes.append(note)
        return note

    def asks(self, verb: str, key: str, second: float, **more: Any) -> Verb:
        """Write a verb that was done within a tenth of a second."""
        said = Verb(
            len(self.account.verbs), verb, key, after(second), more.get("given", {}),
            after(second + 0.1), more.get("outcome", "done"), more.get("code"),
            more.get("answer", {}),
        )  # fmt: skip
        self.account.verbs.append(said)
        return said

    def acts(self, verb: Verb, name: str | None = None, of: str | None = None) -> None:
        """Note the action of a verb."""
        by = f"{verb.by}@host" if verb.verb == "backfill" else verb.by
        self.account.actions.append(Action(verb.key, name or verb.verb, verb.sent, by, of))


def an_account_in_order() -> Account:
    """Return an account of a minute in which something of every kind happened, and was right."""
    make = Maker()
    whens = {"plain": EVERY, "gone": EVERY}
    make.asks("apply", "", 0, given={"whens": whens}, answer={"refused": {}})
    _windows(make)
    _overlaps(make)
    _holds(make)
    _followers(make)
    _requests(make)
    _filled(make)
    _steps(make)
    account = make.account
    account.endings.append(Ending("worker-0", 1, 0, asked=True))
    account.faults.append(Fault("kill", "worker-0", after(5), after(7)))
    account.calm = Calm(after(65), [Schedule(**vars(each)) for each in account.schedules])
    return account


def _windows(make: Maker) -> None:
    make.declares("plain", onDead="hears")
    for second in (0, 10, 20, 40, 50, 60):
        make.runs("plain", second, second + 0.2, second + 1)
    died = make.runs("plain", 30, 30.2, 31, "failed")
    make.runs(
        "plain", 30, 32, 33, kind="handler", workflow_id=f"{died.workflow_id}:dead",
        timing="handler",
    )  # fmt: skip
    make.account.letters.append(died.workflow_id)
    make.declares("off", exclude=[f"{after(15).isoformat()}..{after(35).isoformat()}"])
    for second in (0, 10, 40, 50, 60):
        make.runs("off", second, second + 0.2, second + 1)
    make.decides(
        "off", 20, "skipped", windows=2, last_fire_time=after(30), reason="excluded: a stretch"
    )
    make.declares("late")
    newest = make.runs(
        "late", 40, 45, 46, timing="caught_up", reason="caught up for 4 missed windows"
    )
    make.decides(
        "late", 0, "skipped", windows=4, last_fire_time=after(30),
        reason=f"coalesced into {newest.bucket}",
    )  # fmt: skip
    for second in (50, 60):
        make.runs("late", second, second + 0.2, second + 1)


def _overlaps(make: Maker) -> None:
    make.declares("skips", overlap="skip")
    long = make.runs("skips", 0, 0.2, 15)
    make.decides("skips", 10, "skipped", reason=f"overlap: {long.workflow_id} is still running")
    for second in (20, 30, 40, 50, 60):
        make.runs("skips", second, second + 0.2, second + 1)
    make.declares("two", overlap="skip", maxConcurrentRuns=2)
    first = make.runs("two", 0, 0.2, 25)
    make.runs("two", 10, 10.2, 25)
    make.decides("two", 20, "skipped", reason=f"overlap: {first.workflow_id} and 1 more are open")
    for second in (30, 40, 50, 60):
        make.runs("two", second, second + 0.2, second + 1)
    make.declares("line", overlap="queue", maxQueued=1)
    make.runs("line", 0, 0.2, 25)
    make.runs("line", 10, 25.5, 27)
    make.decides("line", 20, "skipped", reason="overlap: the queue is full (1)")
    for second in (30, 40, 50, 60):
        make.runs("line", second, second + 0.2, second + 1)
    make.declares("newest", overlap="cancel_previous")
    make.runs("newest", 0, 0.2, 21, "cancelled")
    taken = make.decides("newest", 10, "skipped")
    taking = make.runs("newest", 20, 21.5, 22)
    taken.reason = f"overlap: {taking.workflow_id} took its place"
    for second in (30, 40, 50, 60):
        make.runs("newest", second, second + 0.2, second + 1)


def _holds(make: Maker) -> None:
    make.declares("held")
    make.runs("held", 0, 0.2, 1)
    make.acts(make.asks("pause", "held", 5))
    make.decides("held", 10, "skipped", windows=2, last_fire_time=after(20), reason="paused")
    make.acts(make.asks("resume", "held", 25, answer={"before": {"at": "then"}}))
    for second in (30, 60):
        make.runs("held", second, second + 0.2, second + 1)
    at = {"at": after(40).isoformat()}
    make.acts(make.asks("skip", "held", 32, given=at, answer={"changed": True}))
    make.decides("held", 40, "skipped", reason="user", decided_at=after(32))
    make.runs("held", 50, 50.2, 51)
    make.declares("stays")
    make.runs("stays", 0, 0.2, 1)
    make.acts(make.asks("pause", "stays", 5))
    make.decides("stays", 10, "skipped", windows=6, last_fire_time=after(60), reason="paused")
    make.account.schedules[-1].paused_at = after(5.05)
    make.declares("gone")
    make.runs("gone", 0, 0.2, 1)
    make.runs("gone", 10, 10.2, 11)
    make.asks("prune", "gone", 15, answer={"retired": ["gone"]})
    gone = make.account.schedules[-1]
    gone.cursor, gone.retired_at = after(15.05), after(15.05)


def _followers(make: Maker) -> None:
    make.declares("child", after={"schedule": "plain"})
    make.declares("either", after={"schedule": "plain", "when": "always", "window": "latest"})
    for second in (0, 10, 20, 40, 50, 60):
        make.runs("child", second, second + 2, second + 3)
    make.decides("child", 30, "skipped", reason="dependency: plain failed")
    for second in range(0, 61, 10):
        make.runs("either", second, second + 2, second + 3)


def _requests(make: Maker) -> None:
    make.declares("asked", overlap="skip")
    for second in (0, 10, 20, 30, 60):
        make.runs("asked", second, second + 0.2, second + 1)
    beside = make.runs("asked", 40, 40.2, 45)
    failed = make.runs("asked", 50, 50.2, 51, "failed")
    name = "sched:asked:manual:r"
    _asked(make, "trigger", 5, f"{name}1", request_id="r1").runs("completed", 6)
    unseen = f"overlap: {beside.workflow_id} was not seen to end"
    _asked(make, "trigger", 42, f"{name}2", request_id="r2").does_not_run(unseen)
    _asked(make, "rerun", 55, f"{failed.workflow_id}:rerun:1", bucket=failed.bucket).runs(
        "completed", 56
    )
    make.asks("skip", "asked", 56, given={"at": after(50).isoformat()}, outcome="refused",
              code="SCHEDULE_WINDOW_DECIDED")  # fmt: skip
    _asked(make, "trigger", 70, f"{name}3", request_id="r3").runs("cancelled", 80)
    _asked(make, "trigger", 75, f"{name}4", request_id="r4").does_not_run("user: enough")
    ended = {"asked": [f"{name}3"], "already": [], "skipped": [f"{name}4"], "retired": False}
    make.acts(make.asks("cancel", "asked", 78, answer=ended), of=f"{name}3")


class _asked:  # noqa: N801 - it reads as a verb
    """A run that somebody asked for, under this name."""

    def __init__(self, make: Maker, verb: str, second: float, name: str, **given: Any) -> None:
        self.make, self.second, self.name, self.given = make, second, name, given
        self.kind = "manual" if verb == "trigger" else verb
        answer = {"new": True, "fire": {"workflow_id": name}}
        make.acts(make.asks(verb, "asked", second, given=given, answer=answer), of=name)

    def _row(self) -> dict[str, Any]:
        return {"kind": self.kind, "workflow_id": self.name, "bucket": self.given.get("bucket", 1)}

    def runs(self, status: str, end: float) -> None:
        self.make.runs("asked", self.second, self.second + 0.2, end, status, **self._row())

    def does_not_run(self, reason: str) -> None:
        self.make.decides("asked", self.second, "skipped", reason=reason, **self._row())


def _filled(make: Maker) -> None:
    make.declares("filled", catchUp={"policy": "none"})
    for second in (0, 10):
        make.runs("filled", second, 60 + second / 2, 61 + second / 2, timing="backfill")
    for second in (20, 30, 40, 50, 60):
        make.runs("filled", second, second + 0.2, second + 1)
    span = {"from": after(0).isoformat(), "to": after(10).isoformat(), "include": []}
    make.acts(make.asks("backfill", "filled", 58, given=span))
    moment = after(61.5)
    entry = {"key": "own", "at": moment.isoformat()}
    at = make.asks("at", "own", 30, given={"at": moment.isoformat()})
    make.acts(at, "schedule")
    make.account.definitions.append(Definition("own", 1, 1, entry, after(30), after(30.05), at.by))
    make.account.schedules.append(Schedule("own", 1, moment, "api", enabled=True))
    own = make.runs("own", 61.5, 61.7, 62)
    own.second_runs = ["by-hand"]
    given = {"name": own.workflow_id, "memo": True}
    make.asks("second", "own", 65, given=given, answer={"run_id": "by-hand"})
    make.account.strangers = [2, None]
    make.account.copied_at = own.decided_at
    make.account.restored = [replace(own, run_id=None, status="unvouched", closed_at=None)]


def _steps(make: Maker) -> None:
    """Two steps of a queue at once, and a third while the process of one had ended."""
    runs = make.account.runs
    for number, (pid, begin, end) in enumerate(((1, 0, 10), (2, 1, None), (3, 5, 9))):
        note = make.notes(runs[number], begin, 0, "narrow")
        note.pid, note.ended, note.place = pid, end, f"narrow/{number}"
        note.effect = f"{note.run_id}/{note.place}"
    make.account.stillnesses.append(Stillness(2, 4.0))
