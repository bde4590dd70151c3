"""Real ``sched worker`` processes, and the books they must leave in order."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import asyncpg
from temporalio.client import Client
from temporalio.service import RPCError

from engine.schedules import Schedule, ScheduleFile
from tests.acceptance.forked import Forked, ended
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
SCHED = Path(sys.executable).with_name("sched")


class Replica:
    """One ``sched worker`` process."""

    def __init__(self, process: asyncio.subprocess.Process | Forked, log: Path) -> None:
        self.process, self.log = process, log

    @property
    def state(self) -> str:
        """The process's state letter: S sleeping, R running, T stopped, Z dead."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        return stat.read_text().rpartition(")")[2].split()[0] if stat.exists() else "Z"

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def gone(self, timeout: float = 60) -> int:  # noqa: ASYNC109 - the caller's deadline
        async with asyncio.timeout(timeout):
            return await self.process.wait()


class Fleet:
    """Workers of one namespace and one ledger; whatever is left is killed at the end."""

    def __init__(self, folder: Path, *, address: str, namespace: str, database_url: str) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "TEMPORAL_ADDRESS": address,
            "TEMPORAL_NAMESPACE": namespace,
            "SCHED_DATABASE_URL": database_url,
            "SCHED_IMPORTS": "tests.sample_noop,tests.sample_workflows",
            "PYTHONPATH": str(ROOT),
        }
        self.options = ["--verbose"]
        self.replicas: list[Replica] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for replica in self.replicas:
            if replica.process.returncode is None:
                replica.send(signal.SIGKILL)
        for replica in self.replicas:
            await replica.process.wait()

    async def start(self, file: str, **environment: str) -> Replica:
        """Start one worker with this schedule file; upper-case keywords go to its environment."""
        arguments, log, told = self._prepare(file, ROOT, environment)
        # Not in a thread: two that look for the exit code at once would spoil it.
        process = Forked(arguments, program=SCHED, folder=self.folder, log=log, environment=told)
        return self._note(process, log)

    async def start_by_command(
        self, file: str, *, code: Path | str = ROOT, **environment: str
    ) -> Replica:
        """Start one with an interpreter of its own, as users do.

        ``code``: a folder with a version of all of this, for this very interpreter.
        """
        arguments, log, told = self._prepare(file, code, environment)
        with log.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "engine.cli", *arguments, cwd=self.folder, env=told,
                stdout=sink, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
        return self._note(process, log)

    async def sched(self, *arguments: str) -> tuple[int, str]:
        """Run another command beside them; returns its exit code and everything it printed."""
        code, output, told = await ended(
            *arguments, program=SCHED, folder=self.folder, environment=self.environment
        )
        return code, output + told

    def _prepare(
        self, file: str, code: Path | str, environment: Mapping[str, str]
    ) -> tuple[list[str], Path, dict[str, str]]:
        path = self.folder / f"schedules-{len(self.replicas)}.yaml"
        path.write_text(file)
        log = self.folder / f"worker-{len(self.replicas)}.log"
        log.touch()
        arguments = [*self.options, "worker", "--schedules", str(path)]
        return arguments, log, {**self.environment, "PYTHONPATH": str(code), **environment}

    def _note(self, process: asyncio.subprocess.Process | Forked, log: Path) -> Replica:
        replica = Replica(process, log)
        self.replicas.append(replica)
        return replica

    def logged(self, text: str) -> int:
        """How often the workers logged this."""
        return sum(replica.log.read_text().count(text) for replica in self.replicas)

    async def until_started_some(self, *replicas: Replica) -> None:
        """Wait until these workers, or all, have started a run: SIGTERM kills one that comes up."""
        every = replicas or self.replicas
        await eventually(
            lambda: all(" started: lag" in r.log.read_text() for r in every), timeout=60
        )

    def already_started(self) -> set[str]:
        """The ids of the runs that existed before a worker sent its start."""
        logs = [replica.log.read_text() for replica in self.replicas]
        return {run for log in logs for run in re.findall(r"(sched:\S+) already started", log)}


class Books:
    """What PostgreSQL and Temporal hold, read by other means than the engine's own."""

    def __init__(self, connection: asyncpg.Connection, client: Client) -> None:
        self._connection, self._client = connection, client
        self.namespace = client.namespace

    async def fires(self) -> list[asyncpg.Record]:
        try:
            return await self._connection.fetch(
                "SELECT * FROM sched.fire_history ORDER BY fire_time, key"
            )
        except asyncpg.UndefinedTableError:  # no worker has migrated the ledger yet
            return []

    async def forget(self, workflow_id: str) -> None:
        """Delete a row, as nothing of the engine does."""
        await self._connection.execute(
            "DELETE FROM sched.fires WHERE workflow_id = $1", workflow_id
        )

    async def runs(self) -> Counter[str]:
        """How many runs each workflow id has; visibility is eventual, so ask again."""
        runs: Counter[str] = Counter()
        try:
            async for run in self._client.list_workflows('WorkflowId STARTS_WITH "sched:"'):
                runs[run.id] += 1
        except RPCError as error:
            raise AssertionError(f"the server could not say: {error}") from error
        return runs

    async def until_fired(
        self,
        keys: Iterable[str],
        count: int,
        *,
        timeout: float,  # noqa: ASYNC109
        since: datetime | None = None,
    ) -> None:
        """Wait until each key has so many windows (that opened after a moment) that ran."""
        wanted = set(keys)

        async def enough() -> bool:
            rows = await self.fires()
            fired = Counter(
                row["key"] for row in rows
                if row["run_id"] and (since is None or row["fire_time"] > since)
            )  # fmt: skip
            return all(fired[key] >= count for key in wanted)

        await eventually(enough, timeout=timeout, every=0.2)

    async def until_settled(self, until: datetime, timeout: float) -> None:  # noqa: ASYNC109
        """Wait until the fate of every window that opened before a moment is known."""

        async def settled() -> bool:
            rows = await self._opened(until)
            open_ = [r["workflow_id"] for r in rows if r["status"] in {"claimed", "starting"}]
            assert not open_, open_
            return True

        await eventually(settled, timeout=timeout, every=0.2)

    async def until_owed_settled(self, keys: Iterable[str]) -> datetime:
        """Wait until what opened before this call is settled; return the time of the call.

        The keys are of intervals. A worker must be running: a claim whose lease ends before it is
        sent, because the machine is busy, is left to others, also by the last one that leaves.
        """
        called_at = datetime.now(UTC)
        # A key's windows are decided in order.
        await self.until_fired(keys, 1, since=called_at, timeout=60)
        await self.until_settled(called_at, timeout=40)
        return called_at

    async def agree(self, file: ScheduleFile, *, until: datetime) -> None:
        """Every window that opened before ``until`` has one row and one run, and none is missing.

        All of them are settled. Workers may go on, but a server that lists its runs is busy.
        """

        async def counted() -> list[asyncpg.Record]:
            rows = await self._opened(until)
            runs = await self.runs()
            assert set(runs.values()) <= {1}, "a window with two runs"
            ran = {row["workflow_id"] for row in rows if row["run_id"]}
            others = {row["workflow_id"] for row in await self.fires()} - ran
            differing = (set(runs) - others) ^ ran
            assert not differing, differing
            return rows

        rows = await eventually(counted, timeout=40, every=0.2)
        for schedule in file.schedules:
            fired = [row["fire_time"] for row in rows if row["key"] == schedule.key]
            assert fired == windows_between(schedule, fired[0], fired[-1]), schedule.key
        assert {row["status"] for row in rows} <= {"started", "completed"}

    async def _opened(self, before: datetime) -> list[asyncpg.Record]:
        return [row for row in await self.fires() if row["fire_time"] < before]


def windows_between(schedule: Schedule, first: datetime, last: datetime) -> list[datetime]:
    """The windows of an interval, by plain arithmetic."""
    assert schedule.every_ms
    step = timedelta(milliseconds=schedule.every_ms)
    return [first + n * step for n in range((last - first) // step + 1)]
