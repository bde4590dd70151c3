"""Watch: the looks for conditions in the ledger; each is reported once, and sent to the receiver.

Every replica runs one, and one of them at a time has the duty. The process `sched watch` runs one
too, because a fleet that is gone reports nothing; while it does, no replica judges.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from engine.errors import Code, LedgerError, LedgerUnavailable, TemporalUnavailable, extra_missing
from engine.ledger import CONDITION_FIELDS, AlertChanges, AlertRow, AlertStore, Condition, Ledger
from engine.runtime.clock import ClockWatch, backoff, boottime, jittered
from engine.runtime.events import (
    Alert,
    Degraded,
    Notice,
    OnEvent,
    Recovered,
    process_name,
    words_of,
)
from engine.runtime.loop import Loop
from engine.runtime.settings import Settings
from engine.runtime.watch.conditions import JUDGED, Judgement, WatchContext, judge
from engine.runtime.watch.receiver import Receiver, ping

_DUTY, _APART = "watch", "watch-apart"
"""Duties of one replica, and of one process `sched watch`, which goes before it."""
_ASKS = "namespace"
_ANNOUNCED = 10.0
"""Seconds beyond a heartbeat in which a replica announces itself when the ledger is back."""
_AT_ONCE = 20
"""Alerts sent at once."""
_LEASE = timedelta(seconds=30)
"""Longer than a receiver may take to answer."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_EVERY_PING = 60.0
"""Seconds between two signs that all is well."""
_AWAY = timedelta(seconds=15)
"""How long a server has to be away to be a condition; a restart takes less."""
_GRAVE = frozenset({Code.NOT_FIRED, Code.TEMPORAL_UNAVAILABLE, Code.LEDGER_UNAVAILABLE})
"""Conditions that end the signs that all is well: windows may be late. The others do not."""
_LOGGED = frozenset({Code.TASK_QUEUE_UNPOLLED, Code.DEAD_LETTERS})
"""Conditions that the tracker writes to the log when it sees them."""
_OF_SERVERS = frozenset({Code.TEMPORAL_UNAVAILABLE, Code.LEDGER_UNAVAILABLE})
"""Conditions that the loops report as ``ServerAway``, at once and with the address."""


class Watch:
    """The looks of one process.

    Args:
        open_ledger: opens the ledger; called again until it succeeds.
        holder: who takes the duty.
        apart: whether it is that of `sched watch`. It reports what others have found, too.
        temporal: returns why Temporal cannot be reached from here, or None.
        clock: receives a reading of the ledger's clock, and when it was asked for; returns why the
            clock is not trusted, or None.
        namespace: of the ledger, for the receiver.
    """

    def __init__(
        self,
        open_ledger: Callable[[], Awaitable[Ledger]],
        settings: Settings,
        *,
        holder: str,
        apart: bool = False,
        temporal: Callable[[], Awaitable[str | None]],
        clock: Callable[[datetime, float], str | None],
        namespace: str,
        on_event: OnEvent,
    ) -> None:
        self._open, self._settings = open_ledger, settings
        self._holder, self._apart = holder, apart
        self._ledger: Ledger | None = None
        self._temporal, self._clock, self._emit = temporal, clock, on_event
        url = settings.alert_url
        self._receiver = Receiver(url, namespace) if url else None
        # While the ledger is away, this process has only itself to remember that.
        self._here = _LedgerAlert()
        self._since: dict[Code, datetime] = {}
        self._pinged = -_EVERY_PING
        self._silent: set[str] = set()
        self._seen: dict[str, AlertRow] = {}
        self._late: set[str] | None = None
        self._undecided: set[str] = set()
        self._back_at: float | None = -math.inf

    @property
    def _every(self) -> timedelta:
        return self._settings.heartbeat / 2

    async def run_once(self) -> timedelta:
        """Look once; return the wait until the next look.

        Raises:
            LedgerUnavailable: the ledger is away; once that lasts, the receiver has an alert.
        """
        try:
            ledger = self._ledger = self._ledger or await self._open()
            well = await self._look(ledger)
        except LedgerUnavailable as error:
            self._back_at = None
            await self._note_ledger(str(error))
            raise
        await self._note_ledger(None)
        if well is not None:
            await self._deliver(ledger.alerts)
            await self._ping(well=well)
        return self._every

    async def end(self) -> None:
        """Leave the duty to others."""
        if self._ledger is not None:
            await self._ledger.release_duty(_APART if self._apart else _DUTY, self._holder)

    async def _look(self, ledger: Ledger) -> bool | None:
        """Return whether no window may be late, None without the duty."""
        lease = max(self._every * 3, _LEASE)
        if not self._apart and await ledger.hold_duty(_DUTY, self._holder, lease) is None:
            return None
        # Not every process reaches Temporal, or trusts the clock, when others do: two that judge
        # would end each other's alerts. A replica takes this duty for no time: to see it is free.
        lease = lease if self._apart else timedelta(0)
        if await ledger.hold_duty(_APART, self._holder, lease) is None:
            return await self._follow(ledger)
        return await self._judge(ledger)

    async def _follow(self, ledger: Ledger) -> bool:
        """Take over what the process on duty has found; return whether no window may be late."""
        self._late = None  # should it judge later, that is its first look
        alerts = await ledger.alerts.open()
        if self._apart:
            self._report(self._news(alerts, of=JUDGED | {Code.TEMPORAL_UNAVAILABLE}))
        return not any(alert.code in _GRAVE for alert in alerts)

    async def _judge(self, ledger: Ledger) -> bool:
        """Judge the facts; return whether no window may be late."""
        temporal = await self._temporal()
        asked = boottime()
        facts = await ledger.facts()
        clock = self._clock(facts.now, asked)
        around = WatchContext(temporal, clock, self._settings.drain)
        judged = judge(facts, around)
        found = self._lasting(judged)
        conditions = [
            *found.conditions,
            *self._away(Code.TEMPORAL_UNAVAILABLE, "Temporal", temporal),
        ]
        found = Judgement(conditions, {*found.of, Code.TEMPORAL_UNAVAILABLE})
        await self._note(ledger.alerts, found)
        await self._repair(ledger, judged)
        late = [*judged.conditions, *conditions]
        return not any(condition.code in _GRAVE for condition in late)

    async def _repair(self, ledger: Ledger, found: Judgement) -> None:
        """Let pollers search for every due window, once for each window that none has decided.

        With a higher epoch their next probe has no lower bounds, behind which it might lie.
        """
        undecided = {each.name for each in found.conditions if each.cause == "undecided"}
        if undecided - self._undecided:
            async with ledger.transaction() as transaction:
                await transaction.raise_epoch()
        self._undecided = undecided

    def _lasting(self, found: Judgement) -> Judgement:
        """Leave out windows that the look before did not find late, and who was silent for a while.

        A worker that has just started decides within moments what is owed, or rejects it. While
        the ledger was away no worker could announce itself.
        """
        late = {each.name for each in found.conditions if each.code is Code.NOT_FIRED}
        before, self._late = self._late, late
        lasting = [
            each
            for each in found.conditions
            if each.code is not Code.NOT_FIRED or (before and each.name in before)
        ]
        # The first look of a process does not know whether what others have found is over.
        unjudged = {Code.NOT_FIRED} if before is None else set()
        self._back_at = boottime() if self._back_at is None else self._back_at
        if boottime() - self._back_at < self._settings.heartbeat.total_seconds() + _ANNOUNCED:
            lasting = [each for each in lasting if each.code is not Code.REPLICA_VANISHED]
            unjudged |= {Code.REPLICA_VANISHED}
        return Judgement(lasting, set(found.of) - unjudged)

    async def _note(self, book: AlertStore | _LedgerAlert, found: Judgement) -> None:
        changes = await book.note(found.conditions, of=found.of)
        if self._apart:
            changes = self._news(await book.open(), of=found.of)
        self._report(changes)

    def _report(self, changes: AlertChanges) -> None:
        for alert in changes.resolved:
            if alert.code not in _LOGGED:
                quiet = alert.code in _OF_SERVERS
                self._emit(Notice(f"resolved: {alert.text}", good=True, quiet=quiet))
        for alert in changes.opened:
            if alert.code not in _LOGGED:
                self._emit(Alert(alert.code, alert.text, quiet=alert.code in _OF_SERVERS))

    def _news(self, now: Sequence[AlertRow], *, of: Collection[Code]) -> AlertChanges:
        """Return what has changed since the last look, also by looks of other processes."""
        seen = {alert.name: alert for alert in now if alert.code in of}
        known = {name: alert for name, alert in self._seen.items() if alert.code in of}
        self._seen = {**{name: self._seen[name] for name in self._seen.keys() - known}, **seen}
        return AlertChanges(
            [alert for name, alert in seen.items() if name not in known],
            [alert for name, alert in known.items() if name not in seen],
        )

    # --- servers that are away ---

    async def _note_ledger(self, error: str | None) -> None:
        """Note that the ledger is away, or is there again, in this process."""
        conditions = self._away(Code.LEDGER_UNAVAILABLE, "the ledger", error)
        await self._note(self._here, Judgement(conditions, {Code.LEDGER_UNAVAILABLE}))
        await self._deliver(self._here)

    def _away(self, code: Code, server: str, error: str | None) -> list[Condition]:
        """Return the condition of a server that has been away for a while."""
        if error is None:
            self._since.pop(code, None)
            return []
        now = datetime.now(UTC)
        since = self._since.setdefault(code, now)
        if now - since < _AWAY:
            return []
        text = f"{server} cannot be reached: {error}"
        return [Condition(name=f"away:{code}", code=code, text=text, since=since)]

    # --- receivers ---

    async def _deliver(self, book: AlertStore | _LedgerAlert) -> None:
        if self._receiver is None:
            return
        due = await book.take(_AT_ONCE, lease=_LEASE)
        receiver = self._receiver
        await asyncio.gather(*(self._send(receiver, book, alert) for alert in due))

    async def _send(
        self, receiver: Receiver, book: AlertStore | _LedgerAlert, alert: AlertRow
    ) -> None:
        error = await receiver.send(alert)
        self._report_answer("SCHED_ALERT_URL", error)
        if error is None:
            await book.confirm(alert)
        else:
            pause = jittered(backoff(_FIRST_PAUSE, alert.attempts - 1, _LONGEST_PAUSE))
            await book.put_off(alert, error, wait=timedelta(seconds=pause))

    async def _ping(self, *, well: bool) -> None:
        url = self._settings.heartbeat_url
        if not well:
            self._pinged = -_EVERY_PING  # the next sign comes as soon as all is well
        if url is None or not well or boottime() - self._pinged < _EVERY_PING:
            return
        error = await ping(url)
        self._report_answer("SCHED_HEARTBEAT_URL", error)
        if error is None:
            self._pinged = boottime()

    def _report_answer(self, variable: str, error: str | None) -> None:
        """Report the first failure of an address, and its first success after that."""
        if error is not None and variable not in self._silent:
            self._silent.add(variable)
            self._emit(Notice(f"{variable}: {error}; it is tried again", good=False))
        elif error is None and variable in self._silent:
            self._silent.discard(variable)
            self._emit(Notice(f"{variable} answers again", good=True))


class _LedgerAlert:
    """The alert that the ledger is away, in the memory of one process: see ``AlertStore``."""

    def __init__(self) -> None:
        self._row: AlertRow | None = None
        self._due: datetime | None = None

    async def note(
        self,
        found: Sequence[Condition],
        *,
        of: Collection[Code],  # noqa: ARG002 - as of ``AlertStore``; here there is one condition
    ) -> AlertChanges:
        now, row, is_open = datetime.now(UTC), self._row, self._row and self._row.is_open
        if not found:
            if row is None or not is_open:
                return AlertChanges()
            ended = replace(row, resolved_at=now)
            sent = row.sent or row.attempts > 0  # perhaps received, without an answer
            self._row = replace(ended, sent=True, attempts=0, error=None) if sent else None
            self._due = now if sent else None
            return AlertChanges(resolved=[ended])
        (condition,) = found
        values = {name: getattr(condition, name) for name in CONDITION_FIELDS}
        if row is not None and is_open:
            self._row = replace(row, **(values | {"since": row.since}))
            return AlertChanges()
        # The receiver has not confirmed the end of one that is still here.
        self._row, self._due = AlertRow(**values, opened_at=now, sent=row is not None), now
        return AlertChanges([self._row])

    async def take(self, _limit: int, *, lease: timedelta) -> list[AlertRow]:
        now = datetime.now(UTC)
        if self._row is None or self._due is None or self._due > now:
            return []
        self._row, self._due = replace(self._row, attempts=self._row.attempts + 1), now + lease
        return [self._row]

    async def confirm(self, alert: AlertRow) -> None:
        if self._row is None:
            return
        if not self._row.is_open and self._row.resolved_at == alert.resolved_at:
            self._row = self._due = None
            return
        is_present = self._row.resolved_at == alert.resolved_at
        self._row = replace(self._row, sent=alert.is_open, attempts=0, error=None)
        self._due = None if is_present else datetime.now(UTC)

    async def put_off(self, alert: AlertRow, error: str, *, wait: timedelta) -> None:
        if self._row is not None and self._row.resolved_at == alert.resolved_at:
            self._row, self._due = replace(self._row, error=error), datetime.now(UTC) + wait

    async def open(self) -> list[AlertRow]:
        return [self._row] if self._row is not None and self._row.is_open else []


# --- the process `sched watch` ---


class WatchProcess:
    """A watch in a process of its own, which needs no worker, and outlives both servers.

    Args:
        url: the address of the ledger.
        schema: its PostgreSQL schema.
        connect: connects to Temporal; called again until it succeeds.

    Raises:
        ExtraMissing: the settings name an address, and the extra ``webhooks`` is not installed.
    """

    def __init__(
        self,
        url: str,
        settings: Settings,
        *,
        namespace: str,
        schema: str,
        connect: Callable[[], Awaitable[Client]],
        on_event: OnEvent,
    ) -> None:
        if settings.calls and (missing := extra_missing("webhooks", settings.calls)):
            raise missing
        self._url, self._namespace, self._schema = url, namespace, schema
        self._connect, self._settings = connect, settings
        self._client: Client | None = None
        self._ledger: Ledger | None = None
        self._skew, self._looks = ClockWatch(settings.max_skew), 0
        self._watch = Watch(
            self._opened,
            settings,
            apart=True,
            temporal=self._temporal,
            clock=self._clock,
            holder=process_name(),
            namespace=namespace,
            on_event=on_event,
        )
        self._loop = Loop(
            "watch", self._watch.run_once, end=self._watch.end, on_event=on_event, asks=True
        )
        self._emit, self._away = on_event, False
        self._refusal: LedgerError | None = None

    async def run(self) -> None:
        """Look until stopped.

        Raises:
            LedgerError: the ledger refuses this process, which no later look would change.
        """
        try:
            await self._loop.run()
        finally:
            if self._ledger is not None:
                await self._ledger.close()
        if self._refusal is not None:
            raise self._refusal

    def stop(self) -> None:
        """Stop after the look in progress."""
        self._loop.stop()

    @property
    def looks(self) -> int:
        """Number of readings of the ledger's clock so far."""
        return self._looks

    async def _opened(self) -> Ledger:
        try:
            self._ledger = await Ledger.connect(
                self._url, namespace=self._namespace, schema=self._schema, connections=2
            )
        except LedgerUnavailable:
            raise
        except LedgerError as error:
            if isinstance(error.__cause__, asyncpg.InsufficientPrivilegeError):
                raise  # until somebody migrates, or grants
            self._refusal = error
            self._loop.stop()
            raise LedgerUnavailable(str(error)) from error
        return self._ledger

    async def _temporal(self) -> str | None:
        try:
            self._client = self._client or await self._connect()
            asked = DescribeNamespaceRequest(namespace=self._namespace)
            await self._client.workflow_service.describe_namespace(
                asked, timeout=self._settings.rpc_timeout
            )
        except (TemporalUnavailable, RPCError, RuntimeError) as error:
            if not self._away:
                self._away = True
                self._emit(Degraded(_ASKS, words_of(error), "temporal"))
            return words_of(error)
        if self._away:
            self._away = False
            self._emit(Recovered(_ASKS, "temporal"))
        return None

    def _clock(self, now: datetime, asked: float) -> str | None:
        self._looks += 1
        self._skew.observe(now, asked, boottime())
        if not self._skew.holds:
            return None
        return f"the ledger's clock has jumped by {self._skew.skew:+.1f} s"
