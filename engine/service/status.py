"""Status of a namespace: its workers, and what is wrong now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from engine.errors import Code
from engine.ledger import (
    AlertRow,
    Binding,
    Condition,
    Facts,
    Fire,
    LedgerServer,
    Load,
    QueueRow,
    QueueUse,
    ScheduleRow,
    SeenReplica,
    Serving,
    Subscription,
    TemporalNamespace,
    Totals,
)
from engine.runtime.events import ServerName
from engine.runtime.watch.conditions import WatchContext, judge, was_replaced
from engine.service.base import ReadOperations

_MOST: Final = 1000
"""Most stuck runs that are read."""
MOST_COUNTED: Final = 10_000
"""The largest number that is counted."""
_OVERDUE: Final = 5000
"""Most conditions of a kind that are read."""
_WORST_FIRST: Final = (
    *(Code.NOT_FIRED, Code.FIRED_LATE, Code.REPLICA_VANISHED, Code.TASK_QUEUE_UNPOLLED),
    *(Code.TASK_QUEUE_MIXED, Code.PAUSED_AFTER_FAILURES, Code.FAILURES_IN_ROW),
    *(Code.SKIPPED_IN_ROW, Code.DEAD_LETTERS),
)
_EVERYWHERE: Final = Serving("", "", "", frozenset())

WorkerState = Literal["alive", "silent"]


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker that has announced itself, and has not said that it stops.

    Attributes:
        replica: its name, ``host:pid:…``.
        version: of sched-engine.
        tzdata: the zone rules that it computes by.
        types: the workflow types that it serves, in order.
        started_at: when it announced itself first.
        seen_at: when it did so last.
        age: how long before the look that was.
        claims: number of windows in its hands: claimed, or sent without an answer yet.
        state: ``silent`` after two and a half heartbeats without a sign of life.
    """

    replica: str
    host: str
    version: str
    tzdata: str
    project: str
    task_queue: str
    types: tuple[str, ...]
    started_at: datetime
    seen_at: datetime
    age: timedelta
    claims: int
    state: WorkerState


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server, and why it cannot be reached; None if it answers."""

    server: ServerName
    error: str | None = None

    @property
    def answers(self) -> bool:
        """Whether it can be reached."""
        return self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """State of a namespace at one moment.

    Attributes:
        at: the ledger's time; None without a ledger.
        servers: those that were asked.
        bindings: the Temporal namespaces that the ledger belongs, or has belonged, to.
        workers: as of ``workers``.
        unserved: whether schedules are to fire, and no worker at all is alive.
        lag: age of the oldest window that is due and not decided; zero if none is.
        totals: numbers of each kind, of 10,000 at most; ``overdue`` is not counted.
        conditions: what a look of the watch finds now, the worst first: by their kind, then by how
            many schedules or runs each stands for.
        stuck: open runs that cannot continue, or have a step that keeps failing.
        alerts: the open alerts, as the watch has raised them.
        facts: of which the conditions are judged.
    """

    at: datetime | None = None
    servers: Sequence[ServerState] = ()
    bindings: Sequence[Binding] = ()
    workers: Sequence[WorkerRow] = ()
    unserved: bool = False
    lag: timedelta = timedelta(0)
    totals: Totals | None = None
    conditions: Sequence[Condition] = ()
    stuck: Sequence[Fire] = ()
    alerts: Sequence[AlertRow] = ()
    facts: Facts | None = None

    def with_temporal(self, error: str | None) -> StatusReport:
        """Return this report with what asking Temporal came to; the causes are those of the watch.

        ``error``: why it cannot be reached; None if it answers.
        """
        found = self.conditions
        if self.facts is not None:
            found = _in_order(judge(self.facts, WatchContext(error)).conditions)
        servers = [*self.servers, ServerState("temporal", error)]
        return replace(self, servers=servers, conditions=found)

    @property
    def overdue(self) -> list[Condition]:
        """The windows that have not fired, each cause with its schedules."""
        return [each for each in self.conditions if each.code is Code.NOT_FIRED]

    @property
    def others(self) -> list[Condition]:
        """The conditions that are not windows which have not fired."""
        return [each for each in self.conditions if each.code is not Code.NOT_FIRED]

    @property
    def unconfirmed(self) -> list[AlertRow]:
        """The open alerts that this look does not confirm."""
        found = {each.name for each in self.conditions}
        return [each for each in self.alerts if each.name not in found]

    @property
    def is_good(self) -> bool:
        """Whether servers answer, a worker lives, no condition lasts and no run is stuck."""
        away = not all(each.answers for each in self.servers)
        return not (away or self.unserved or self.conditions or self.stuck)


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question about an installation.

    Attributes:
        name: what was looked at.
        good: whether it is as it should be; None if it could not be asked.
        text: what was found.
        hint: what to do about it.
    """

    name: str
    good: bool | None
    text: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class TemporalFacts:
    """The namespace as Temporal describes it, and its pollers.

    Attributes:
        namespace: the namespace.
        kinds: its search attributes, each with its kind; None if it does not say.
        pollers: who polls the task queues that were asked for, by name.
    """

    namespace: TemporalNamespace
    kinds: Mapping[str, str] | None
    pollers: Mapping[str, Sequence[str]]


class Overview(ReadOperations):
    """Operations that show how the whole namespace is; none of them writes."""

    async def queues(self) -> list[tuple[QueueRow, list[QueueUse]]]:
        """Return every step queue by name, with the steps that run in it now."""
        async with self._ledger.transaction() as transaction:
            rows = await transaction.queues()
        use = await self._ledger.queue_use()
        return [(row, [each for each in use if each.queue == name]) for name, row in rows.items()]

    async def task_queues(self) -> list[str]:
        """Return the task queues of the schedules that may fire."""
        return sorted({each.schedule.task_queue for each in await self._firing() if each.schedule})

    async def _firing(self) -> list[ScheduleRow]:
        rows = await self.schedules()
        return [each for each in rows if each.schedule and each.state in {"active", "paused"}]

    async def examine(
        self, temporal: TemporalFacts | str, *, clock: Callable[[], datetime], own_attribute: str
    ) -> list[Finding]:
        """Return what an operator has to know of an installation, the ledger's server first.

        Args:
            temporal: what Temporal says, or why it was not asked.
            clock: the time of this machine.
            own_attribute: the search attribute by which runs of a schedule are found.
        """
        before = clock()
        server = await self._ledger.server()
        skew = server.now - (before + (clock() - before) / 2)
        facts, firing = await self._ledger.facts(), await self._firing()
        living = [each for each in facts.replicas if not each.is_silent(facts.now)]
        used = {name for row in firing if row.schedule for name in row.schedule.search_attributes}
        hooks = [each for each in await self._ledger.events.subscriptions() if each.kind == "hook"]
        found = [*_of_server(server), _of_clock(skew, self._settings.max_skew)]
        if isinstance(temporal, str):
            found.append(Finding("temporal", None, f"not asked: {temporal}"))
        else:
            found.append(_of_binding(await self._ledger.bindings(), temporal.namespace))
            found.append(_of_retention(temporal.namespace.retention, firing, self._settings.lease))
            found.append(_of_attributes(temporal.kinds, {own_attribute, *used}))
        polled = None if isinstance(temporal, str) else temporal.pollers
        return [
            *found,
            *_of_queues(firing, living, polled),
            _of_tzdata(living),
            _of_hooks(hooks),
        ]

    async def workers(self) -> list[WorkerRow]:
        """Return every worker that has not withdrawn, by project, task queue and start.

        One that is silent for ten minutes, and was replaced, is left out.
        """
        return _workers(await self._ledger.facts(), await self._ledger.load(most=_MOST))

    async def status(self) -> StatusReport:
        """Return the state of the namespace, as the ledger has it."""
        facts = await self._ledger.facts(limit=_OVERDUE)
        load = await self._ledger.load(most=_MOST)
        workers = _workers(facts, load)
        return StatusReport(
            at=facts.now,
            servers=[ServerState("ledger")],
            bindings=await self._ledger.bindings(),
            workers=workers,
            unserved=load.awaits and all(each.state == "silent" for each in workers),
            lag=facts.now - load.due_since if load.due_since else timedelta(0),
            totals=await self._ledger.totals(_EVERYWHERE, most=MOST_COUNTED),
            conditions=_in_order(judge(facts, WatchContext()).conditions),
            stuck=await self._ledger.failing(limit=_MOST),
            alerts=await self._ledger.alerts.open(),
            facts=facts,
        )


def _in_order(found: Iterable[Condition]) -> list[Condition]:
    rank = {code: number for number, code in enumerate(_WORST_FIRST)}
    return sorted(found, key=lambda each: (rank[each.code], -each.number, each.since))


def _workers(facts: Facts, load: Load) -> list[WorkerRow]:
    living = [each for each in facts.replicas if not each.is_silent(facts.now)]
    return [
        WorkerRow(
            replica=seen.replica,
            host=seen.replica.rsplit(":", 2)[0],
            version=seen.engine,
            tzdata=seen.tzdata,
            project=seen.project,
            task_queue=seen.task_queue,
            types=tuple(sorted(seen.types)),
            started_at=seen.started_at,
            seen_at=seen.seen_at,
            age=max(facts.now - seen.seen_at, timedelta(0)),
            claims=load.claims.get(seen.replica, 0),
            state="silent" if seen.is_silent(facts.now) else "alive",
        )
        for seen in facts.replicas
        if not was_replaced(seen, living, facts.now)
    ]


# --- findings ---
# What ``sched doctor`` says of each part of an installation.

_LEASES: Final = 4
_ALMOST: Final = 0.9
_NAMED: Final = 5


def _of_server(server: LedgerServer) -> Iterator[Finding]:
    pooler = ", behind a pooler in session mode" if server.pooled else ""
    yield Finding("postgresql", True, f"PostgreSQL {server.version}{pooler}")
    owner = "owns the ledger" if server.owns else "does not own the ledger"
    role = "is a superuser" if server.superuser else owner
    hint = "give workers a role of their own: `sched docs ledger`"
    bad = server.superuser
    yield Finding("role", not bad, f"{server.role} {role}", hint if bad else None)
    full = server.connections >= server.most * _ALMOST
    yield Finding(
        "connections",
        not full,
        f"{server.connections} of {server.most}",
        "raise max_connections, or put a pooler in session mode before it" if full else None,
    )
    missing = list(server.missing_indexes)
    text = f"indexes to be built: {_first(missing)}" if missing else "up to date"
    yield Finding(
        "migrations", not missing, text, "`sched migrate` builds them" if missing else None
    )


def _of_clock(skew: timedelta, most: timedelta) -> Finding:
    seconds = skew.total_seconds()
    far = abs(skew) > most
    hint = "set the clocks of both by NTP; the ledger's decides what is due" if far else None
    return Finding("clock", not far, f"the ledger's is {seconds:+.1f} s from this machine's", hint)


def _of_binding(bindings: Sequence[Binding], namespace: TemporalNamespace) -> Finding:
    current = next((each for each in bindings if each.current), None)
    if current is None:
        return Finding("namespace", True, "the ledger is not bound yet; the first worker binds it")
    same = current.namespace_id == namespace.id
    text = f"the ledger belongs to {current.place}"
    hint = f"TEMPORAL_* name {namespace.place}: correct them, or `sched move`"
    return Finding("namespace", same, text, None if same else hint)


def _of_retention(kept: timedelta, firing: Sequence[ScheduleRow], lease: timedelta) -> Finding:
    text = f"Temporal keeps closed runs for {kept / timedelta(hours=1):g} h"
    if kept < lease * _LEASES:
        seconds = lease.total_seconds()
        hint = f"raise it to {_LEASES} leases of {seconds:g} s or more, or lower SCHED_LEASE"
        return Finding("retention", False, text, hint)
    windows = [
        each.key for each in firing if each.schedule and each.schedule.catch_up.window > kept
    ]
    if not windows:
        return Finding("retention", True, text)
    more = f"{text}, and catchUp.window is longer: {_first(windows)}"
    return Finding("retention", False, more, "raise it, or shorten catchUp.window")


def _of_attributes(kinds: Mapping[str, str] | None, wanted: Collection[str]) -> Finding:
    if kinds is None:
        return Finding("search attributes", None, "not asked: Temporal does not list them")
    missing = sorted(set(wanted) - set(kinds))
    if not missing:
        return Finding("search attributes", True, f"{_first(sorted(wanted))}")
    hint = f"`temporal operator search-attribute create --name {missing[0]} --type Keyword`"
    return Finding("search attributes", False, f"not registered: {_first(missing)}", hint)


def _of_queues(
    firing: Sequence[ScheduleRow],
    living: Sequence[SeenReplica],
    polled: Mapping[str, Sequence[str]] | None,
) -> Iterator[Finding]:
    needed = Counter(each.schedule.task_queue for each in firing if each.schedule)
    external = {
        each.schedule.task_queue for each in firing if each.schedule and each.schedule.external
    }
    for queue, number in sorted(needed.items()):
        workers = sorted(each.replica for each in living if each.task_queue == queue)
        others = set((polled or {}).get(queue, ())) - set(map(_sdk_name, workers))
        names = sorted({*workers, *others})
        served = bool(workers) or (queue in external and bool(names))
        text = f"polled by {_first(names)}" if names else "nobody polls it"
        text += f", for {number} schedule{'s' if number > 1 else ''}"
        if served:
            yield Finding(f"task queue {queue}", True, text)
        elif queue in external and polled is None:
            yield Finding(f"task queue {queue}", None, "not asked: its workers are Temporal's")
        else:
            hint = f"start a worker: `sched worker --task-queue {queue}`"
            yield Finding(f"task queue {queue}", False, text, hint)


def _sdk_name(replica: str) -> str:
    """Return ``pid@host``, the name by which the SDK polls for the worker ``host:pid:…``."""
    host, *pid = replica.rsplit(":", 2)
    return f"{pid[0]}@{host}" if pid else host


def _of_tzdata(living: Sequence[SeenReplica]) -> Finding:
    versions = sorted({each.tzdata for each in living})
    if not versions:
        return Finding("tzdata", None, "not known: no worker is alive")
    same = len(versions) == 1
    hint = "build every worker with the same zone rules: the older ones leave schedules alone"
    text = f"{_first(versions)} in {len(living)} worker{'s' if len(living) > 1 else ''}"
    return Finding("tzdata", same, text, None if same else hint)


def _of_hooks(hooks: Sequence[Subscription]) -> Finding:
    failing = [each for each in hooks if each.failing_since is not None]
    if not failing:
        return Finding("webhooks", True, f"{len(hooks)} declared, none fails")
    first = failing[0]
    text = f"{len(failing)} of {len(hooks)} fail, {first.name}: {first.failing_error}"
    return Finding("webhooks", False, text, "`sched events --subscribers` shows each")


def _first(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
