"""``make prove-audit``: twenty minutes of schedules, kills, outages and verbs, audited at the end.

Twenty schedules of every kind and four ``sched worker`` processes run on a real PostgreSQL and
Temporal. A seed draws what happens: workers are killed, all of them are away for a while,
schedules are paused and resumed, edited and skipped. Each five minutes, and at the end, everything
is audited against the ledger and Temporal, and has to be complete. Then one window each is dropped,
shifted, begun early and doubled, and the audit has to find all four. It is no part of the test
suite.
"""

# ruff: noqa: T201 - a command prints
from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
from temporalio.client import Client

from engine.audit.visibility import TemporalRuns
from engine.embedded import PostgresServer, TemporalServer
from engine.errors import TemporalUnavailable
from engine.service import AuditReport, ScheduleService
from tests.acceptance.fleet import Fleet
from tests.postgres import Postgres
from tests.servers import FAST_AND_FORGETFUL, register_namespace, shared_folder
from tests.waiting import eventually

WORKERS = 4
NAMESPACE = "prove-audit"
AUDIT_EVERY = 300.0
SECOND = timedelta(seconds=1)
LEASE = "3s"
FILE = """
defaults: {{grace: 3s, firstFire: next}}
schedules:
  - {{key: allow, workflow: noop, everyMs: 1000}}
  - {{key: shifted-anchor, workflow: noop, everyMs: 1700, offsetMs: 333}}
  - {{key: all, workflow: noop, everyMs: 2000, catchUp: {{policy: all, max: 5, rate: 2/1s}}}}
  - {{key: none, workflow: noop, everyMs: 2000, catchUp: {{policy: none}}}}
  - {{key: after-pause, workflow: noop, everyMs: 2000, catchUp: {{pause: latest}}}}
  - {{key: all-after-pause, workflow: noop, everyMs: 3000, catchUp: {{pause: all, max: 3}}}}
  - {{key: queue, workflow: noop, everyMs: 1500, overlap: queue}}
  - {{key: queue-one, workflow: noop, everyMs: 1500, overlap: queue_one}}
  - {{key: skip, workflow: noop, everyMs: 1500, overlap: skip}}
  - {{key: instead, workflow: sleeps, everyMs: 4000, overlap: terminate_previous}}
  - {{key: parent, workflow: noop, everyMs: 3000}}
  - {{key: child, workflow: noop, everyMs: 3000, after: {{schedule: parent}}}}
  - {{key: fails, workflow: fails, everyMs: 3000}}
  - {{key: spread, workflow: noop, everyMs: 3000, spread: 2s}}
  - {{key: cron, workflow: noop, cron: "*/2 * * * * *", timezone: America/New_York}}
  - {{key: named, workflow: noop, cron: "0-59/3 0-59 0-23 * * *", timezone: Asia/Kathmandu}}
  - {{key: off, workflow: noop, everyMs: 2000, exclude: [{off}]}}
  - {{key: switched, workflow: noop, everyMs: 2000, enabled: {enabled}}}
  - {{key: edited, workflow: noop, everyMs: {every}}}
  - {{key: plain-type, workflow: noop@1, external: true, everyMs: 2000}}
"""
PAUSED = ("allow", "all", "none", "after-pause", "all-after-pause", "queue", "cron", "named", "off")


class Proof:
    """One run of the proof.

    Args:
        fleet: starts workers.
        service: acts on their ledger.
        client: a client of their namespace.
        chance: draws what happens.
    """

    def __init__(
        self, fleet: Fleet, service: ScheduleService, client: Client, chance: random.Random
    ) -> None:
        self._fleet, self._service, self._chance = fleet, service, chance
        self._runs = TemporalRuns(client)
        self._every, self._enabled, self._off = 2000, "true", "2000-01-01"
        self._paused: set[str] = set()
        self.done: dict[str, int] = {}

    async def start(self) -> None:
        """Start a worker with the present file."""
        text = FILE.format(every=self._every, enabled=self._enabled, off=self._off)
        await self._fleet.start(text, SCHED_LEASE=LEASE)

    def living(self) -> list[int]:
        """Return the places of the workers that live."""
        replicas = self._fleet.replicas
        return [n for n, each in enumerate(replicas) if each.process.returncode is None]

    async def has_begun(self) -> bool:
        """Return whether every schedule is declared and has fired."""
        rows = await self._service.schedules()
        return bool(rows) and all(row.last_fire_at or row.key == "off" for row in rows)

    async def go_on(self, seconds: float) -> None:
        """Let things happen for a while."""
        ends = time.monotonic() + seconds
        happens = [self.kill, self.kill, self.outage, self.pause, self.pause, self.resume,
                   self.resume, self.edit, self.skip]  # fmt: skip
        while time.monotonic() < ends:
            event = self._chance.choice(happens)
            await event()
            self.done[event.__name__] = self.done.get(event.__name__, 0) + 1
            await asyncio.sleep(self._chance.uniform(2, 8))

    async def kill(self) -> None:
        """Kill one worker, and start another one."""
        place = self._chance.choice(self.living())
        self._fleet.replicas[place].send(signal.SIGKILL)
        await self._fleet.replicas[place].gone()
        await self.start()

    async def outage(self) -> None:
        """Kill all workers, and start them again later than every grace."""
        for place in self.living():
            self._fleet.replicas[place].send(signal.SIGKILL)
        await asyncio.sleep(self._chance.uniform(1, 12))
        for _ in range(WORKERS):
            await self.start()

    async def pause(self) -> None:
        """Pause a schedule, for a while or until it is resumed."""
        key = self._chance.choice(PAUSED)
        until = datetime.now().astimezone() + 5 * SECOND if self._chance.random() < 0.3 else None
        await self._service.pause(key, reason="the proof", until=until)
        self._paused.add(key)

    async def resume(self) -> None:
        """Resume a schedule."""
        if self._paused:
            key = self._chance.choice(sorted(self._paused))
            await self._service.resume(key)
            self._paused.discard(key)

    async def edit(self) -> None:
        """Change the file: another interval, disabled or not, and what is a day off."""
        today = datetime.now().astimezone()
        self._every = self._chance.choice([1000, 1500, 2000, 2500])
        self._enabled = self._chance.choice(["true", "false"])
        self._off = self._chance.choice([f"{today:%Y-%m-%d}", "2000-01-01"])
        await self.start()
        oldest = self.living()[0]
        self._fleet.replicas[oldest].send(signal.SIGTERM)
        await self._fleet.replicas[oldest].gone()

    async def skip(self) -> None:
        """Skip a window to come."""
        row = await self._service.schedule("allow")
        if row.schedule is None or row.pause is not None:
            return
        coming = row.schedule.spec.next(datetime.now().astimezone() + 3 * SECOND)
        if coming is not None:
            await self._service.skip("allow", coming, reason="the proof")

    async def audit(self, since: datetime) -> AuditReport:
        """Rest until nothing is late, and audit."""
        while len(self.living()) < WORKERS:
            await self.start()
        last: AuditReport | None = None

        async def clean() -> AuditReport | None:
            nonlocal last
            with suppress(TemporalUnavailable):  # an embedded server beside much else
                last = await self._service.audit(since, runs=self._runs)
                return last if last.is_clean else None
            return None

        with suppress(AssertionError):  # what stays wrong is in the last report
            await eventually(clean, timeout=240, every=1)
        assert last is not None
        return last


def wrong(report: AuditReport) -> list[str]:
    """Return what an audit has found, a line each."""
    return [
        f"{each.key} {fault.kind} {fault.fire_time} x{fault.windows}: {fault.what}"
        for each in report.schedules for fault in each.faults
    ]  # fmt: skip


async def spoil(url: str) -> dict[str, str]:
    """Spoil a window of some schedules; return the fault of each that has to be found."""
    connection = await asyncpg.connect(url, server_settings={"search_path": "sched"})
    ids = {
        key: await connection.fetchval(
            "SELECT id FROM fires WHERE key = $1 AND status IN ('completed', 'failed')"
            " AND timing = 'on_time' ORDER BY fire_time DESC OFFSET 3 LIMIT 1", key,
        )
        for key in ("allow", "shifted-anchor", "fails", "cron")
    }  # fmt: skip
    run = connection.execute
    await run("DELETE FROM fires WHERE id = $1", ids["allow"])
    await run("UPDATE fires SET fire_time = fire_time + interval '100 ms', last_fire_time ="
              " fire_time + interval '100 ms' WHERE id = $1", ids["shifted-anchor"])  # fmt: skip
    await run("UPDATE fires SET started_at = fire_time - interval '1 min' WHERE id = $1",
              ids["fails"])  # fmt: skip
    await run(
        "INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,"
        " definition_version, workflow_id, task_queue, status, timing, run_id, started_at)"
        " SELECT namespace, project, key, 2, bucket, fire_time, last_fire_time, 1,"
        " workflow_id || ':s2', task_queue, status, timing, 'another', started_at"
        " FROM fires WHERE id = $1", ids["cron"],
    )  # fmt: skip
    await connection.close()
    return {"allow": "missing", "shifted-anchor": "missing", "fails": "early", "cron": "doubled"}


async def prove(minutes: float, seed: int) -> int:
    """Run the proof and return the exit code."""
    with shared_folder() as folder, tempfile.TemporaryDirectory() as place:
        postgres = PostgresServer(folder / "pg", durable=False)
        temporal = TemporalServer(
            folder / "temporal", dynamic_config=FAST_AND_FORGETFUL, in_memory=True
        )
        await postgres.start()
        await temporal.start()
        try:
            await register_namespace(await Client.connect(temporal.address), NAMESPACE)
            client = await Client.connect(temporal.address, namespace=NAMESPACE)
            url = await Postgres(postgres.url_of("postgres")).create_database("prove_audit")
            fleet = Fleet(
                Path(place), address=temporal.address, namespace=NAMESPACE, database_url=url
            )
            connecting = ScheduleService.connect(
                url, namespace=NAMESPACE, schema="sched", actor="proof"
            )
            async with fleet, connecting as service:
                return await _proved(Proof(fleet, service, client, random.Random(seed)), url,
                                     minutes)  # fmt: skip
        finally:
            await temporal.stop()
            await postgres.stop()


async def _proved(proof: Proof, url: str, minutes: float) -> int:
    since = datetime.now().astimezone()
    for _ in range(WORKERS):
        await proof.start()
    await eventually(proof.has_begun, timeout=120, every=0.5)
    left = minutes * 60
    while left > 0:
        part = min(left, AUDIT_EVERY)
        await proof.go_on(part)
        left -= part
        report = await proof.audit(since)
        windows = sum(each.expected for each in report.schedules)
        print(f"{windows:,} windows: {report.verdict}; {proof.done}", flush=True)
        if not report.is_clean:
            print("\n".join(wrong(report)))
            return 1
    expected = await spoil(url)
    report = await proof._service.audit(since)
    found = {each.key: each.verdict for each in report.schedules if each.verdict != "complete"}
    missed = expected.items() - found.items()
    print(f"spoilt: {found}")
    print("\n".join(f"not found: {key} {kind}" for key, kind in missed))
    return 1 if missed else 0


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(prog="make prove-audit", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.exit(asyncio.run(prove(options.minutes, options.seed)))


if __name__ == "__main__":
    main()
