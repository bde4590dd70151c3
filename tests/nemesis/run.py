"""One run of the nemesis: the attack, the calm after it, and the account of both."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
from temporalio.client import Client

from tests.nemesis import reading
from tests.nemesis.account import Account, Calm
from tests.nemesis.fleet import LEASE, Fleet
from tests.nemesis.plan import Act, plan
from tests.nemesis.restored import dump, go_on_with_the_copy
from tests.nemesis.schedules import ENDLESS, QUEUES, at_rest, entries, text
from tests.nemesis.verbs import Operator, environment_of
from tests.servers import shared_folder

CALM = 20.0
"""Seconds without a fault until everything that is owed should be decided."""

_ROOM = 2**30
_CALM_WITHIN = 60.0

_REST_WITHIN = 180.0
_LAST_ONES = 8.0
"""Seconds for what waits in a queue to begin, before what never ends is cancelled."""

_PENDING = """
SELECT workflow_id FROM sched.fires
WHERE status IN ('claimed', 'queued', 'starting', 'started')
   OR (status IN ('failed', 'timed_out', 'rejected') AND followed_at IS NULL AND kind <> 'handler')
"""


async def attack(
    seed: int, minutes: float, pace: float, folder: Path, say: Callable[[str], None]
) -> Account:
    """Let everything happen that the seed says; returns the account of it."""
    file = entries(datetime.now(UTC), pace)
    (folder / "now.yaml").write_text(text(file), encoding="utf-8")
    with shared_folder() as servers, _in_memory(servers) as runs:
        fleet = Fleet(servers, runs, folder)
        async with fleet.run():
            url = fleet.database_url("operator")
            began = time.monotonic()

            def on_event(text: str) -> None:
                say(f"{time.monotonic() - began:7.2f} {text}")

            async with Operator.connect(
                url, fleet.postgres.url, file, on_event, temporal=fleet.temporal.address
            ) as operator:
                run = _Run(plan(seed, minutes * 60), fleet, operator, on_event)
                calm = await run.go(folder / "copy.sql", at=minutes * 30)
                account = await _account(seed, fleet, operator, calm)
                account.late, account.copied_at = sorted(run.late), run.copied_at
                await go_on_with_the_copy(fleet, account, folder / "copy.sql", on_event)
                return account


@contextmanager
def _in_memory(otherwise: Path) -> Iterator[Path]:
    """A folder that outlives the end of a server, and where it waits for no disk.

    Temporal's file costs several writes a step; a disk that takes 5 ms for one lets it start five
    runs a second.
    """
    memory = Path("/dev/shm")  # noqa: S108 - which is its purpose
    if not memory.is_dir() or shutil.disk_usage(memory).free < _ROOM:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(prefix="sched-nemesis-", dir=memory) as folder:
        yield Path(folder)


class _Run:
    def __init__(
        self, acts: Sequence[Act], fleet: Fleet, operator: Operator, on_event: Callable[[str], None]
    ) -> None:
        self._acts, self._fleet, self._operator, self._emit = acts, fleet, operator, on_event
        self._began = time.monotonic()
        self.late: list[float] = []
        self.copied_at: datetime | None = None

    async def go(self, copy: Path, at: float) -> Calm:
        """Let it all happen, with a copy of the ledger after so many seconds."""
        await self._fleet.all_up()
        await self._until_announced()
        await self._operator.apply(self._operator.file, "")
        self._began = time.monotonic()
        strain = asyncio.create_task(self._feel_the_strain())
        await asyncio.gather(*(self._in_time(act) for act in self._acts), self._copy(copy, at))
        strain.cancel()
        self._emit("healed: calm begins")
        await self._fleet.all_up()
        await asyncio.sleep(CALM)
        return await self._rest()

    async def _until_announced(self) -> None:
        """A file is applied whole only when its workflows are known."""
        connection = await asyncpg.connect(self._fleet.postgres.url)
        try:
            for _ in range(1200):
                known = await connection.fetchval("SELECT to_regclass('sched.workflow_types')")
                if known and await connection.fetchval(
                    "SELECT count(*) >= 9 FROM sched.workflow_types"
                ):
                    return
                await asyncio.sleep(0.1)
            raise TimeoutError("no worker announced its workflows within two minutes")
        finally:
            await connection.close()

    async def _in_time(self, act: Act) -> None:
        await asyncio.sleep(self._began + act.at - time.monotonic())
        if act.target in self._fleet.links or act.target in self._places():
            self._emit(f"{act.kind} {act.target} for {act.seconds} s {act.given or ''}")
            await self._fleet.suffer(act)
        else:
            await self._operator.do(act, environment_of(self._fleet.database_url("operator")))

    async def _copy(self, copy: Path, at: float) -> None:
        await asyncio.sleep(at)
        async with self._fleet.postgres_stays():
            self.copied_at = datetime.now(UTC)
            await dump(self._fleet.postgres, copy)
        self._emit("the ledger was copied")

    async def _feel_the_strain(self) -> None:
        """Note how late this process itself is: on a machine that is too busy all else is, too."""
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.25)
            self.late.append(round(time.monotonic() - began - 0.25, 3))

    def _places(self) -> set[str]:
        return {"postgres", "temporal", "stranger", *self._fleet.workers}

    async def _rest(self) -> Calm:
        """Let nothing new come, and what there is end."""
        connection = await asyncpg.connect(self._fleet.postgres.url)
        try:
            # The machine may have much else to do.
            await reading.left(connection, reading.LATE, _CALM_WITHIN)
            calm = Calm(
                await connection.fetchval("SELECT clock_timestamp()"),
                await reading.schedules(connection),
            )
            await self._stop_all(calm)
            left = await reading.left(connection, _PENDING, _REST_WITHIN)
            self._emit(f"no rest: {left[:20]}" if left else "at rest")
            # A claim is given up, and what ends a run is asked again, within some leases.
            await asyncio.sleep(LEASE / 2)
        finally:
            await connection.close()
        await asyncio.gather(*(worker.leave() for worker in self._fleet.workers.values()))
        self._emit("left")
        return calm

    async def _stop_all(self, calm: Calm) -> None:
        operator = self._operator
        for state in calm.schedules:
            if state.paused_at and state.retired_at is None:
                await operator.resume(state.key)
        await operator.apply(at_rest(operator.file), "")
        for state in calm.schedules:
            if state.retired_at is None and state.origin == "api":
                await operator.cancel(state.key, state.key)
            elif state.retired_at is None and state.key not in operator.file:
                await operator.prune(state.key)  # the one that came with its removal was lost
        await asyncio.sleep(_LAST_ONES)
        for key in ENDLESS:
            await operator.cancel(key, key)


async def _account(seed: int, fleet: Fleet, operator: Operator, calm: Calm) -> Account:
    connection = await asyncpg.connect(fleet.postgres.url)
    client = await Client.connect(fleet.temporal.address)
    elsewhere = await Client.connect(fleet.elsewhere.address)
    try:
        return Account(
            seed=seed,
            ended_at=datetime.now(UTC),
            definitions=await reading.definitions(connection),
            schedules=await reading.schedules(connection),
            rows=await reading.rows(connection),
            actions=await reading.actions(connection),
            letters=await reading.letters(connection),
            runs=await reading.runs(client),
            notes=reading.notes(fleet.folder / "notes"),
            stillnesses=[each for one in fleet.workers.values() for each in one.stillnesses],
            endings=[each for one in fleet.workers.values() for each in one.endings],
            verbs=operator.verbs,
            faults=fleet.faults,
            failures=reading.failures(fleet.folder),
            strangers=fleet.strangers,
            stray=(await elsewhere.count_workflows()).count,
            queues={name: queue["concurrency"] for name, queue in QUEUES.items()},
            calm=calm,
        )
    finally:
        await connection.close()
