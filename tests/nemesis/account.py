"""The account of a run: what the ledger, Temporal, the steps and the operator say, as plain values.

The laws judge nothing else. It shares no code with the engine, is written to a file beside the
logs, and can be judged again from there.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

SECOND = "second"
"""The type of runs that somebody starts under the ids of windows."""
CLOSED = ("completed", "failed", "cancelled", "terminated", "timed_out")


@dataclass
class Definition:
    """One version of a schedule; it owns the windows after ``effective_from``."""

    key: str
    version: int
    series: int
    entry: dict[str, Any]
    effective_from: datetime
    applied_at: datetime
    applied_by: str


def first_key(key: str) -> str:
    """Return the first key of a schedule that a verb has renamed: the account has all under it."""
    return key.partition(".r")[0]


@dataclass
class Schedule:
    """The state of a key."""

    key: str
    definition_version: int
    cursor: datetime
    origin: str
    enabled: bool
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    retired_at: datetime | None = None
    error: str | None = None


@dataclass
class Row:
    """One row of ``fire_history``, with what the table says of its claim."""

    number: int
    key: str
    series: int
    bucket: int
    fire_time: datetime
    windows: int
    last_fire_time: datetime
    kind: str
    workflow_id: str
    run_id: str | None
    status: str
    reason: str | None
    timing: str | None
    definition_version: int
    decided_at: datetime
    starting_at: datetime | None
    started_at: datetime | None
    closed_at: datetime | None
    lease_until: datetime | None
    overlap: str | None
    stop: str | None
    attempts: int
    error: str | None
    second_runs: list[str] = field(default_factory=list)

    @property
    def is_window(self) -> bool:
        return self.kind == "window"


@dataclass
class Action:
    """What the ledger noted of something that somebody did."""

    key: str
    verb: str
    at: datetime
    by: str
    workflow_id: str | None = None


@dataclass
class Run:
    """One execution in Temporal, as its own history tells it."""

    workflow_id: str
    run_id: str
    first_run_id: str
    type: str
    status: str
    start: datetime
    close: datetime | None
    fire: dict[str, Any] | None = None
    """What the memo says of the window."""
    effects: list[str] = field(default_factory=list)
    """Places of the steps that completed."""
    next_run_id: str | None = None


@dataclass
class Chain:
    """One first run and whatever it continued as, or was retried as."""

    workflow_id: str
    runs: list[Run]

    @property
    def start(self) -> datetime:
        return self.runs[0].start

    @property
    def close(self) -> datetime | None:
        return None if self.runs[-1].next_run_id else self.runs[-1].close

    @property
    def status(self) -> str:
        return "running" if self.close is None else self.runs[-1].status

    def is_open_at(self, moment: datetime) -> bool:
        return self.start <= moment and (self.close is None or self.close > moment)


@dataclass
class Note:
    """One attempt of a step, as the step wrote it down; times are the machine's, in seconds."""

    pid: int
    step: str
    queue: str | None
    workflow_id: str
    run_id: str
    place: str
    attempt: int
    effect: str
    began: float
    ended: float | None = None


@dataclass
class Stillness:
    """A time in which a process stood still; ``until`` is None where it had ended."""

    pid: int
    since: float
    until: float | None = None


@dataclass
class Ending:
    """The end of a process that nobody killed; ``asked``: it was to leave, and had time to."""

    worker: str
    pid: int
    code: int | None
    asked: bool


@dataclass
class Verb:
    """Something that was asked for, and what was answered.

    ``outcome`` is ``done``, ``refused`` (with a code) or ``unknown``: the answer was lost, or never
    given.
    """

    number: int
    verb: str
    key: str
    sent: datetime
    given: dict[str, Any] = field(default_factory=dict)
    answered: datetime | None = None
    outcome: str = "unknown"
    code: str | None = None
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def by(self) -> str:
        """Under which name it acted."""
        return f"nemesis-{self.number}"

    @property
    def over(self) -> datetime:
        """When it had taken effect at the latest, as far as is known."""
        return self.answered or datetime.max.replace(tzinfo=self.sent.tzinfo)


@dataclass
class Fault:
    kind: str
    target: str
    began: datetime
    ended: datetime | None = None


@dataclass
class Calm:
    """How far each key had come when nothing had gone wrong for a while."""

    at: datetime
    schedules: list[Schedule]


@dataclass
class Account:
    """Everything that is known of one run of the nemesis."""

    seed: int
    ended_at: datetime
    definitions: list[Definition] = field(default_factory=list)
    schedules: list[Schedule] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    letters: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    stillnesses: list[Stillness] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    verbs: list[Verb] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    strangers: list[int | None] = field(default_factory=list)
    """The exit codes of workers of another cluster; None of one that had to be killed."""
    stray: int = 0
    """The runs on that cluster."""
    late: list[float] = field(default_factory=list)
    """By how many seconds the nemesis itself was late, at each look, the smallest first."""
    queues: dict[str, int] = field(default_factory=dict)
    calm: Calm | None = None
    copied_at: datetime | None = None
    """When the copy was made with which a worker goes on at the end, see ``restored.py``."""
    restored: list[Row] = field(default_factory=list)
    """The rows of that copy at last."""
    on_hold: list[str] = field(default_factory=list)
    """The schedules that are paused in it."""
    ran_in_the_copy: list[Note] = field(default_factory=list)
    """The steps that its worker did."""

    @cached_property
    def chains(self) -> dict[str, list[Chain]]:
        """The chains of each workflow id, in the order in which they began."""
        found: dict[tuple[str, str], list[Run]] = defaultdict(list)
        for run in sorted(self.runs, key=lambda each: each.start):
            found[run.workflow_id, run.first_run_id].append(run)
        chains: dict[str, list[Chain]] = defaultdict(list)
        for (name, _), runs in found.items():
            chains[name].append(Chain(name, runs))
        return chains

    def chain(self, workflow_id: str) -> Chain | None:
        return next(iter(self.chains.get(workflow_id, ())), None)

    @cached_property
    def row_of(self) -> dict[str, Row]:
        return {row.workflow_id: row for row in self.rows}

    @cached_property
    def rows_of(self) -> dict[str, list[Row]]:
        """The rows of each key, in the order in which they were written."""
        found: dict[str, list[Row]] = defaultdict(list)
        for row in sorted(self.rows, key=lambda each: each.number):
            found[row.key].append(row)
        return found

    @cached_property
    def versions(self) -> dict[str, list[Definition]]:
        """The definitions of each key, oldest first."""
        found: dict[str, list[Definition]] = defaultdict(list)
        for definition in sorted(self.definitions, key=lambda each: each.version):
            found[definition.key].append(definition)
        return found

    def entry(self, row: Row) -> dict[str, Any]:
        """What the definition says that a row was decided under."""
        return self.versions[row.key][row.definition_version - 1].entry

    def state(self, key: str) -> Schedule:
        return next(each for each in self.schedules if each.key == key)

    def asked(self, *verbs: str, key: str | None = None, done: bool = True) -> Iterator[Verb]:
        """The verbs of these kinds that were done; else also those whose answer was lost."""
        wanted = {"done"} if done else {"done", "unknown"}
        for verb in self.verbs:
            if verb.verb in verbs and key in {None, verb.key} and verb.outcome in wanted:
                yield verb

    def forget(self) -> None:
        """Forget what was derived: somebody has changed what it was derived from."""
        for name in ("chains", "row_of", "rows_of", "versions"):
            vars(self).pop(name, None)

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), default=_as_text), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Account:
        return _read(cls, json.loads(path.read_text(encoding="utf-8")))  # type: ignore[no-any-return]


def _as_text(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no place in an account")


def _read(kind: Any, value: Any) -> Any:
    """Return a value of this type, made of JSON."""
    if value is None:
        return None
    if get_origin(kind) is UnionType:
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is list:
        return [_read(get_args(kind)[0], each) for each in value]
    if kind is datetime:
        return datetime.fromisoformat(value)
    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
        hints = get_type_hints(kind)
        known = [each.name for each in fields(kind) if each.name in value]
        return kind(**{name: _read(hints[name], value[name]) for name in known})
    return value
