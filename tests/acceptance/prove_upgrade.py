"""``make prove-upgrade``: another release's workers and these on one ledger, under a race.

Many schedules of a second fire through every stage, on a real PostgreSQL and Temporal:

1. the other commit's workers make the ledger; this code's migrate it under them, beside a reader
   that holds its tables for a while; all go on;
2. one of the other commit that is started now works, or refuses where a migration says so;
3. this code's workers die, and the others continue alone; where they may be started they also are;
4. the other way: this code makes the ledger, and the others come and go beside it.

Then every window has one row and one run: the rows of ``sched.fires``, the runs that Temporal
lists, and plain arithmetic are compared, each with each. It is no part of the test suite.

Compatibility begins with the first release: without a tag there is nothing to compare with.
"""

# ruff: noqa: T201 - a command prints
from __future__ import annotations

import argparse
import asyncio
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
from temporalio.client import Client

from engine.embedded import PostgresServer, TemporalServer
from engine.ledger.postgres.schema import Migration, migrations
from tests.acceptance.fleet import ROOT, Books, Fleet, Replica
from tests.postgres import Postgres
from tests.servers import FAST_AND_FORGETFUL, register_namespace, shared_folder
from tests.waiting import eventually

SCHEDULES = 12
FILE = """
schedules:
{racers}
  - {{key: gives-way, workflow: sleeps, everyMs: 1000, overlap: skip}}
"""
QUIET = "gives-way"
"""A schedule whose windows are skipped, so that rows with reasons are written."""
_RACER = "  - {{key: {}, workflow: noop, everyMs: 1000, offsetMs: {}}}"
_APART_MS = 50
_RAN = {"started", "completed"}
_TOO_OLD = "SCHEDULE_LEDGER_TOO_NEW"


@dataclass(frozen=True)
class Commit:
    """The code of another commit, in a folder."""

    name: str
    code: Path

    @classmethod
    def of(cls, name: str, folder: Path) -> Commit:
        """Take it out of the repository."""
        code = folder / name.replace("/", "-")
        code.mkdir()
        tree = subprocess.run(
            ["git", "archive", name], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "--extract", "--directory", code], input=tree.stdout, check=True)
        return cls(name, code)

    @property
    def migrations(self) -> list[Migration]:
        files = sorted((self.code / "engine/ledger").rglob("migrations/*.sql"))
        return [Migration.of(int(file.name[:4]), file.read_text()) for file in files]

    def may_start_beside(self, others: Sequence[Migration]) -> bool:
        """Whether the migrations that this commit's code does not know allow it."""
        mine = {each.version for each in self.migrations}
        unknown = [each for each in others if each.version not in mine]
        return all(each.beside is not None and each.beside <= max(mine) for each in unknown)


@dataclass
class Ground:
    """A ledger and a namespace of their own, and the workers that race on them."""

    fleet: Fleet
    ledger: asyncpg.Connection
    client: Client
    racers: Sequence[str]

    async def start(self, *codes: Path) -> list[Replica]:
        """Start a worker of each."""
        racing = "\n".join(_RACER.format(key, _offset(key)) for key in self.racers)
        file = FILE.format(racers=racing)
        options = {"SCHED_LEASE": "5s", "SCHED_JANITOR": "1s"}
        return [await self.fleet.start_by_command(file, code=code, **options) for code in codes]

    async def all_work(self, replicas: Iterable[Replica], count: int = 5) -> None:
        """Wait until each of some workers has started so many windows from now on."""
        since = await self.ledger.fetchval("SELECT clock_timestamp()")
        wanted = {replica.process.pid: replica for replica in replicas}

        async def done() -> bool:
            made = await self.ledger.fetchval("SELECT to_regclass('sched.fires') IS NOT NULL")
            assert made, "nobody has made the ledger yet"
            rows = await self.ledger.fetch(
                "SELECT split_part(replica, ':', 2)::int AS pid, count(*) FROM sched.fires"
                " WHERE fire_time > $1 AND run_id IS NOT NULL GROUP BY pid", since,
            )  # fmt: skip
            fired = {row["pid"]: row["count"] for row in rows}
            for pid, replica in wanted.items():
                assert replica.process.returncode is None, replica.log.read_text()[-2000:]
                log = replica.log.read_text()[-2000:]
                assert fired.get(pid, 0) >= count, f"{pid} has started {fired.get(pid, 0)}: {log}"
            return True

        await eventually(done, timeout=120, every=0.3)

    async def kill(self, replicas: Iterable[Replica]) -> None:
        """End some workers as a crash would."""
        for replica in replicas:
            replica.send(signal.SIGKILL)
            await replica.gone()

    async def read_for(self, seconds: float) -> None:
        """Hold all tables as a dump does, for some time."""
        reader = await asyncpg.connect(self.fleet.environment["SCHED_DATABASE_URL"])
        async with reader.transaction(isolation="repeatable_read", readonly=True):
            await reader.fetch("SELECT 1 FROM sched.fires, sched.schedules LIMIT 1")
            await asyncio.sleep(seconds)
        await reader.close()

    async def close_the_books(self) -> str:
        """Drain the workers, and compare all that opened up to now; returns a line about it."""
        until = await self.ledger.fetchval("SELECT clock_timestamp()")
        books = Books(self.ledger, self.client)
        await books.until_settled(until, timeout=180)
        for replica in self.fleet.replicas:
            if replica.process.returncode is None:
                replica.send(signal.SIGTERM)
                assert await replica.gone() == 0, replica.log.read_text()[-2000:]
        every = await self.ledger.fetch("SELECT * FROM sched.fires")
        rows = [dict(row) for row in every if row["last_fire_time"] < until]
        later = {row["workflow_id"] for row in every if row["last_fire_time"] >= until}
        runs: Counter[str] = Counter()

        async def agree() -> bool:
            listed = (await books.runs()).items()
            runs.clear()
            runs.update({name: n for name, n in listed if n > 1 or name not in later})
            found = [*differences(rows, runs, self.racers)]
            assert not found, "\n".join(found[:20])
            return True

        await eventually(agree, timeout=120, every=1)
        racing = [row for row in rows if row["key"] in self.racers]
        lags = sorted((row["started_at"] - row["fire_time"]).total_seconds() for row in racing)
        return (
            f"{len(racing)} windows, {sum(runs.values())} runs, none lost, none doubled;"
            f" lag p50 {lags[len(lags) // 2]:.2f} s, longest {lags[-1]:.2f} s"
        )


def differences(
    rows: Sequence[Mapping[str, Any]], runs: Mapping[str, int], racers: Sequence[str]
) -> Iterable[str]:
    """Compare rows, runs and arithmetic, each with each; yields what does not agree."""
    yield from (f"{name} has {count} runs" for name, count in runs.items() if count != 1)
    by_key: dict[str, dict[datetime, Mapping[str, Any]]] = {}
    for row in rows:
        mine = by_key.setdefault(row["key"], {})
        for number in range(row["windows"]):
            at = row["fire_time"] + timedelta(seconds=number)
            if at in mine:
                yield f"{row['key']} has two rows for {at}"
            mine[at] = row
    for key in {*racers, QUIET} - set(by_key):
        yield f"{key} has no rows"
    for key, mine in by_key.items():
        at, last = min(mine), max(mine)
        while (at := at + timedelta(seconds=1)) < last:
            if at not in mine:
                yield f"{key} has no row for {at}"
        if key in racers:
            yield from _ran(key, mine, runs)
    ran = {row["workflow_id"] for row in rows if row["run_id"]}
    yield from (f"{name} ran, and the ledger has no run of it" for name in {*runs} - ran)
    yield from (f"{name} has a run in the ledger alone" for name in ran - {*runs})


def _ran(
    key: str, mine: Mapping[datetime, Mapping[str, Any]], runs: Mapping[str, int]
) -> Iterable[str]:
    for at, row in mine.items():
        name = f"sched:{key}:{(int(at.timestamp() * 1000) - _offset(key)) // 1000}"
        if row["status"] not in _RAN or row["workflow_id"] != name:
            yield f"{name} of {at} is {row['status']} as {row['workflow_id']}: {row['reason']}"
        if name not in runs:
            yield f"{name} of {at} has no run in Temporal"


def _offset(key: str) -> int:
    return int(key.rpartition("-")[2]) * _APART_MS % 1000


async def from_the_other(ground: Ground, other: Commit) -> None:
    """Stages 1 to 3."""
    mine = migrations()
    old = await ground.start(other.code, other.code)
    await ground.all_work(old)
    print(f"  {other.name} works", flush=True)
    reading = asyncio.create_task(ground.read_for(5))
    new = await ground.start(ROOT, ROOT)
    await reading
    await ground.all_work([*old, *new])
    versions = await ground.ledger.fetch("SELECT version FROM sched.migrations")
    assert {row["version"] for row in versions} >= {each.version for each in mine}
    print("  migrated under it, beside a reader; both work", flush=True)
    (late,) = await ground.start(other.code)
    may_start = other.may_start_beside(mine)
    if may_start:
        await ground.all_work([late, *old, *new])
    else:
        assert await late.gone() == 2
        assert _TOO_OLD in late.log.read_text()
    said = "starts and works" if may_start else "refuses to start, as its code does"
    print(f"  one more of {other.name} {said}", flush=True)
    await ground.kill(new)
    await ground.all_work(old)
    print(f"  {other.name} goes on alone", flush=True)
    again = await ground.start(ROOT)
    await ground.all_work([*old, *again])
    await ground.kill([*old, *([late] if may_start else [])])
    await ground.all_work(again)
    print("  this code goes on alone", flush=True)
    await every_reason_has_its_code(ground)


async def from_this(ground: Ground, other: Commit) -> None:
    """Stage 4."""
    new = await ground.start(ROOT, ROOT)
    await ground.all_work(new)
    if not other.may_start_beside(migrations()):
        (late,) = await ground.start(other.code)
        assert await late.gone() == 2
        assert _TOO_OLD in late.log.read_text()
        await ground.all_work(new)
        print(f"  {other.name} refuses a ledger of this code, as its code does", flush=True)
        return
    old = await ground.start(other.code, other.code)
    await ground.all_work([*new, *old])
    print(f"  {other.name} works beside this code, on its ledger", flush=True)
    await ground.kill(new)
    await ground.all_work(old)
    print("  and alone", flush=True)
    new = await ground.start(ROOT)
    await ground.all_work([*new, *old])
    await ground.kill(old)
    await ground.all_work(new)
    print("  and this code again after it", flush=True)


async def every_reason_has_its_code(ground: Ground) -> None:
    """Whichever code wrote it."""
    seen = await ground.ledger.fetch(
        "SELECT DISTINCT reason_code FROM sched.fire_history WHERE reason IS NOT NULL"
    )
    assert {row["reason_code"] for row in seen} == {"overlap", "first_sight"}


def newest_release() -> str | None:
    """The tag of the newest release; None before the first one."""
    tags = subprocess.run(
        ["git", "tag", "--list", "v*", "--sort=-version:refname"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return next(iter(tags.stdout.split()), None)


async def prove(name: str, racers: Sequence[str]) -> None:
    """Let a commit and this code race, in both directions."""
    with shared_folder() as folder, tempfile.TemporaryDirectory(prefix="sched-other-") as place:
        other = Commit.of(name, Path(place))
        postgres = PostgresServer(folder / "pg", durable=False)
        temporal = TemporalServer(
            folder / "temporal", dynamic_config=FAST_AND_FORGETFUL, in_memory=True
        )
        await postgres.start()
        await temporal.start()
        try:
            for begins in (from_the_other, from_this):
                print(re.sub("_", " ", begins.__name__), flush=True)
                logs = Path(place) / begins.__name__
                logs.mkdir()
                url = await Postgres(postgres.url_of("postgres")).create_database(begins.__name__)
                client = await Client.connect(temporal.address)
                await register_namespace(client, begins.__name__)
                client = await Client.connect(temporal.address, namespace=begins.__name__)
                ledger = await asyncpg.connect(url)
                async with Fleet(
                    logs, address=temporal.address, namespace=begins.__name__, database_url=url
                ) as fleet:
                    ground = Ground(fleet, ledger, client, racers)
                    await begins(ground, other)
                    print(f"  {await ground.close_the_books()}", flush=True)
                await ledger.close()
        finally:
            await temporal.stop()
            await postgres.stop()


def main() -> int:
    """Return 0 when nothing was lost or doubled; what went wrong is raised."""
    parser = argparse.ArgumentParser(prog="make prove-upgrade", description=__doc__)
    parser.add_argument("commit", nargs="?", default=newest_release(), metavar="COMMIT")
    parser.add_argument("--schedules", type=int, default=SCHEDULES, metavar="N", help="that race")
    given = parser.parse_args()
    if given.commit is None:
        print("no release is tagged yet (v0.1.0 will be the first): there is nothing to compare")
        return 0
    asyncio.run(prove(given.commit, [f"race-{number:02}" for number in range(given.schedules)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
