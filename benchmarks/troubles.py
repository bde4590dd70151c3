"""The troubles of others beside which ``isolation`` measures: how each is made, and for how long.

Every one is made as operators and accidents make it: by schedule files, commands, SQL of somebody
else's session and a link that is bad. None reaches into the engine.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import asyncpg

from benchmarks import innocent
from benchmarks.arena import Arena
from benchmarks.children import costless_replicas, must_sched, replicas, sched
from benchmarks.costless import closing_runs
from benchmarks.link import Loses
from benchmarks.receivers import BAD, ENVIRONMENT, HEALTHY, Receivers
from engine.runtime.apply.source import DEFAULT_PROJECT
from engine.service import ScheduleService
from tests.waiting import eventually

_SWEEPING_MS = 1030
"""An interval whose windows come at another part of the innocent's second each time."""
_NOWHERE = "external: true, workflow: nobody, taskQueue: nowhere"
_DAYS, _LINE, _OUTAGE, _BEHIND = timedelta(days=3), 100_000, 75.0, 110
_LARGE, _LARGE_KB, _LARGE_EVERY = 100, 50, 20
_BUSY = 1000
_ONE_SHOTS, _ONE_SHOTS_QUICK, _FAILING = 10_000, 1_000, 50
_OPEN_FOR, _OPEN_FOR_QUICK = 30 * 60.0, 120.0
_HANGS = 15.0

_LINE_UP = """
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
                   definition_version, workflow_id, workflow_type, task_queue, status, timing)
SELECT s.namespace, s.project, s.key, s.series, b, to_timestamp(b * $1 / 1000.0),
       to_timestamp(b * $1 / 1000.0), s.definition_version, 'sched:' || s.key || ':' || b,
       s.workflow_type, s.task_queue, 'queued', 'on_time'
FROM schedules s, generate_series($2::bigint, $3::bigint) AS b WHERE s.key = 'line'
"""
_OF_A_LATER_VERSION = """
UPDATE definitions SET definition = definition || '{"someday": "5m"}' WHERE key = 'bad'
"""


@dataclass
class Scene:
    """What a trouble happens to: running replicas, their ledger, and the innocent schedule.

    Attributes:
        place: the servers, Temporal behind the link.
        connection: to the ledger, by other means than the engine's.
        replicas: how many there are.
        costless: whether starts but the innocent's are answered by the worker itself.
        samples: how many windows are watched beside the trouble.
        quick: whether everything is to be short.
        receivers: of webhooks, the healthy one first.
    """

    place: Arena
    connection: asyncpg.Connection
    replicas: int
    costless: bool
    samples: int
    quick: bool
    receivers: Receivers
    head: str = ""
    _fleet: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def file(self) -> Path:
        """The schedule file of the replicas."""
        return self.place.folder / "schedules.yaml"

    def declare(self, *entries: str) -> None:
        """Write the file: the innocent and these."""
        text = "\n  - ".join(["schedules:", innocent.ENTRY, *entries])
        self.file.write_text(f"{self.head}{text}\n")

    async def start(self) -> None:
        """Start the replicas and wait until each of them is there."""
        begun = datetime.now(UTC)
        running = (
            costless_replicas(self.place, self.replicas, self.file, but=innocent.KEY)
            if self.costless
            else replicas(self.place, self.replicas, self.file, **ENVIRONMENT)
        )
        self.processes = await self._fleet.enter_async_context(running)

        async def there() -> bool:
            # The first one makes the table.
            if not await self.connection.fetchval("SELECT to_regclass('sched.replicas')"):
                return False
            count = "SELECT count(*) FROM replicas WHERE started_at > $1"
            return int(await self.connection.fetchval(count, begun)) >= self.replicas

        await eventually(there, timeout=120, every=0.1)

    async def stop(self) -> None:
        """End the replicas."""
        await self._fleet.aclose()

    async def kill(self) -> None:
        """End the replicas as a power cut does."""
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
        await self.stop()

    async def apply(self, *entries: str) -> None:
        """Declare schedules beside the innocent, as a deploy does."""
        self.declare(*entries)
        await must_sched(self.place, "apply", "--schedules", str(self.file))

    async def until_started(self, pattern: str, count: int = 1) -> None:
        """Wait until so many keys like this have a run."""
        keys = "SELECT count(DISTINCT key) FROM fires WHERE key LIKE $1 AND run_id IS NOT NULL"

        async def started() -> bool:
            return int(await self.connection.fetchval(keys, pattern)) >= count

        await eventually(started, timeout=60, every=0.2)


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """One kind of trouble.

    Attributes:
        title: in the table.
        lasting: is in trouble for as long as the block lasts.
        alone: entries that the innocent has beside it before the trouble too.
        replicas: how many. Two hide a trouble that meets one at a time, so as a rule one.
        costless: see ``Scene``.
        one_way: seconds on the link to Temporal, before the trouble too.
        loses: requests that are lost on that link.
        again: seconds after the trouble until the innocent is watched alone once more, of one that
            lasts so long that the machine itself may be another.
        hooked: whether a webhook is watched in place of the runs.
        closes: whether the closes of the innocent's runs are watched in place of their starts.
    """

    title: str
    lasting: Callable[[Scene], AbstractAsyncContextManager[None]]
    alone: Sequence[str] = ()
    replicas: int = 1
    costless: bool = False
    one_way: float = 0.0
    loses: Loses | None = None
    again: float | None = None
    hooked: bool = False
    closes: bool = False


@asynccontextmanager
async def request_backfill(
    place: Arena, key: str, begin: datetime, end: datetime
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Ask for the windows of a stretch by command, and end the command with the block."""
    process = await sched(
        place, "backfill", key, "--from", begin.isoformat(), "--to", end.isoformat(),
        "--overlap", "allow", "--yes",
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def _backfill(scene: Scene) -> AsyncIterator[None]:
    """Its runs outlast the measurement: what executes them here would compete for two cores."""
    await scene.apply(f"{{key: long, {_NOWHERE}, everyMs: 1000}}")
    await scene.until_started("long")
    end = datetime.now(UTC) - timedelta(minutes=1)
    async with request_backfill(scene.place, "long", end - _DAYS, end):
        await asyncio.sleep(3)
        yield


@asynccontextmanager
async def _queue(scene: Scene) -> AsyncIterator[None]:
    """A run that nobody executes, and behind it a line that fills up while it is watched."""
    line = f"everyMs: {_SWEEPING_MS}, overlap: queue, maxQueued: {_LINE}"
    await scene.apply(f"{{key: line, {_NOWHERE}, {line}}}")
    await scene.until_started("line")
    newest = int((time.time() - 600) * 1000 // _SWEEPING_MS)
    oldest = newest - _LINE + scene.samples + 1
    await scene.connection.execute(_LINE_UP, _SWEEPING_MS, oldest, newest)
    await scene.connection.execute("ANALYZE fires")
    yield


@asynccontextmanager
async def _look(scene: Scene) -> AsyncIterator[None]:
    """The run stands in the way of its next windows, so it is looked at, again and again."""
    await scene.apply(f"{{key: stuck, {_NOWHERE}, everyMs: {_SWEEPING_MS}, overlap: skip}}")
    await scene.until_started("stuck")
    await asyncio.sleep(3)
    yield


def _names_a_stuck_run(message: bytes) -> bool:
    return b"sched:stuck:" in message and b"nobody" not in message  # a start names the type


@asynccontextmanager
async def _catch_up(scene: Scene) -> AsyncIterator[None]:
    """The innocent rests during the outage, so that it has nothing to catch up with itself."""
    numbers = range(_BEHIND)
    await scene.apply(*(f"{{key: behind-{n:03}, {_NOWHERE}, everyMs: 1000}}" for n in numbers))
    await scene.until_started("behind-%", _BEHIND)
    await must_sched(scene.place, "pause", innocent.KEY, "--reason", "an outage begins")
    await scene.kill()
    await asyncio.sleep(_OUTAGE)
    await scene.start()
    await must_sched(scene.place, "resume", innocent.KEY)
    yield


@asynccontextmanager
async def _large_inputs(scene: Scene) -> AsyncIterator[None]:
    """New definitions each time: one that was due before has been read already."""
    bursts = scene.samples // _LARGE_EVERY
    lead = 5.0 * (1 + bursts)
    while (begin := await _declare_large(scene.place, bursts, lead)) is None:
        lead *= 2  # a busy machine needs longer
    await asyncio.sleep(begin.timestamp() - time.time())
    yield


async def _declare_large(place: Arena, bursts: int, lead: float) -> datetime | None:
    """Ask for one-shots that are due in bursts; None when the first came before all were there."""
    items = [{"id": n, "name": f"customer {n}"} for n in range(_LARGE_KB * 1024 // 35)]
    assert len(json.dumps(items)) > _LARGE_KB * 1000
    begin = innocent.next_full_second(lead)
    moments = [begin + timedelta(seconds=_LARGE_EVERY * (n + 0.5)) for n in range(bursts)]
    url = place.database_url
    service = ScheduleService.connect(url, namespace="default", schema="sched", actor="benchmark")
    async with service as opened:
        for at in moments:
            for _ in range(_LARGE):
                if datetime.now(UTC) > begin:
                    return None
                await opened.schedule_at(
                    "nobody", at, project=DEFAULT_PROJECT, external=True, taskQueue="nowhere",
                    input=items,
                )  # fmt: skip
    return begin


@asynccontextmanager
async def _one_shots(scene: Scene, *, tenant: str | None = None) -> AsyncIterator[None]:
    """Nobody executes them, as with a backfill."""
    count = _ONE_SHOTS_QUICK if scene.quick else _ONE_SHOTS
    lead = count / 100
    while (begin := await _declare_one_shots(scene.place, count, lead, tenant)) is None:
        lead *= 2  # a busy machine needs longer
    await asyncio.sleep(begin.timestamp() - time.time())
    yield


async def _declare_one_shots(
    place: Arena, count: int, lead: float, tenant: str | None
) -> datetime | None:
    """Ask for one-shots of one moment; None when it came before all were there."""
    begin = innocent.next_full_second(lead)
    room = asyncio.Semaphore(8)
    service = ScheduleService.connect(
        place.database_url, namespace="default", schema="sched", actor="benchmark"
    )
    async with service as opened:

        async def declare() -> None:
            async with room:
                await opened.schedule_at(
                    "nobody", begin, project=DEFAULT_PROJECT, external=True, taskQueue="nowhere",
                    tenant_id=tenant,
                )  # fmt: skip

        await asyncio.gather(*(declare() for _ in range(count)))
    return begin if datetime.now(UTC) < begin else None


@asynccontextmanager
async def _failures(scene: Scene) -> AsyncIterator[None]:
    """The whole of the herd fails while it is watched."""
    count = 100 if scene.quick else 1_000
    at = innocent.next_full_second(count / 50)
    await scene.apply(
        *(f"{{key: f-{n}, workflow: bare-fails, at: '{at.isoformat()}'}}" for n in range(count))
    )
    await asyncio.sleep(max(at.timestamp() - time.time(), 0))
    yield


@asynccontextmanager
async def _failing(scene: Scene) -> AsyncIterator[None]:
    """Each second so many runs fail; the innocent's are recorded among theirs."""
    whose = "metadata: {tenantId: flood}"
    await scene.apply(
        *(
            f"{{key: fails-{n:02}, workflow: bare-fails, every: 1s, {whose}}}"
            for n in range(_FAILING)
        )
    )
    await scene.until_started("fails-%", _FAILING)
    await asyncio.sleep(5 if scene.quick else 60)
    yield


@asynccontextmanager
async def _raises(scene: Scene) -> AsyncIterator[None]:
    """A definition with a field of some later version: no plan can be made of it."""
    await scene.apply(f"{{key: bad, workflow: bare, everyMs: {_SWEEPING_MS}}}")
    await scene.until_started("bad")
    assert await scene.connection.execute(_OF_A_LATER_VERSION) == "UPDATE 1"
    yield


@asynccontextmanager
async def _old_snapshot(scene: Scene) -> AsyncIterator[None]:
    """A session that has read once and stays, as a dump or a forgotten psql does."""
    open_for = _OPEN_FOR_QUICK if scene.quick else _OPEN_FOR
    reader = await asyncpg.connect(scene.place.database_url, ssl=False)
    try:
        await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await reader.execute("SELECT count(*) FROM sched.ledger")
        await asyncio.sleep(open_for - scene.samples)
        yield
    finally:
        await reader.close()


@asynccontextmanager
async def _bad_receivers(scene: Scene) -> AsyncIterator[None]:
    """Each gets what the healthy one gets, and is watched after its first attempts have ended."""
    scene.head = scene.receivers.head([HEALTHY, *BAD])
    await scene.apply()
    await eventually(lambda: scene.receivers.posts.keys() >= {*BAD} - {"closed"}, timeout=60)
    await asyncio.sleep(_HANGS)
    yield


@asynccontextmanager
async def runs_end(scene: Scene) -> AsyncIterator[None]:
    """Let the runs end that only a costless start knows of."""
    if not scene.costless:
        yield
        return
    async with closing_runs(scene.place.database_url, innocent.KEY):
        yield


TROUBLES = {
    "backfill": RpcFailure("a backfill of three days of one-second windows", _backfill),
    "queue": RpcFailure(f"{_LINE:,} windows in line", _queue),
    "look": RpcFailure("a run that cannot be described", _look, loses=_names_a_stuck_run),
    "catch-up": RpcFailure(
        f"{_BEHIND} schedules catching up over a link of 200 ms", _catch_up, one_way=0.1
    ),
    "inputs": RpcFailure(f"{_LARGE} due inputs of {_LARGE_KB} KB", _large_inputs),
    "one-shots": RpcFailure(
        f"{_ONE_SHOTS:,} one-shots of another tenant, due at one moment",
        partial(_one_shots, tenant="flood"),
    ),
    "one-shots-untold": RpcFailure(
        f"{_ONE_SHOTS:,} one-shots without a tenant, due at one moment", _one_shots
    ),
    "failing": RpcFailure(f"{_FAILING} schedules of one second that fail", _failing),
    "closes": RpcFailure(
        f"{_FAILING} schedules of one second that fail; of closes", _failing, closes=True
    ),
    "closes-far": RpcFailure(
        "1,000 failures of one moment over a link of 300 ms; of closes",
        _failures,
        one_way=0.15,
        closes=True,
    ),
    "plan": RpcFailure("a key whose plan raises", _raises),
    "hooks": RpcFailure(
        f"{len(BAD)} bad receivers of webhooks; of a healthy one", _bad_receivers, hooked=True
    ),
    "snapshot": RpcFailure(
        f"a transaction that stays open, with {_BUSY:,} schedules of one second",
        _old_snapshot,
        alone=[f"{{key: busy-{n:04}, workflow: bare, everyMs: 1000}}" for n in range(_BUSY)],
        replicas=2,
        costless=True,
        again=120.0,
    ),
}
