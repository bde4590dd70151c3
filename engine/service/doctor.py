"""Examination of an installation: what ``sched doctor`` asks, and its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from engine.ledger import (
    Binding,
    LedgerServer,
    ScheduleRow,
    SeenReplica,
    Subscription,
    TemporalNamespace,
)
from engine.service.base import ReadOperations

_LEASES: Final = 4
_ALMOST: Final = 0.9
_NAMED: Final = 5


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


class Installation(ReadOperations):
    """Questions about an installation; none of them writes."""

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
