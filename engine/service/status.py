"""Status of a namespace: its workers, and what is wrong now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    Load,
    QueueRow,
    QueueUse,
    Serving,
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


class Overview(ReadOperations):
    """Operations that show how the whole namespace is; none of them writes."""

    async def queues(self) -> list[tuple[QueueRow, list[QueueUse]]]:
        """Return every step queue by name, with the steps that run in it now."""
        async with self._ledger.transaction() as transaction:
            rows = await transaction.queues()
        use = await self._ledger.queue_use()
        return [(row, [each for each in use if each.queue == name]) for name, row in rows.items()]

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
