"""Schedules that wait for each other, and the few moves that their tests make."""

from __future__ import annotations

from engine.ledger.fires import Claim, Evidence, Fire, Outcome
from engine.schedules.terms import Reason
from tests.conformance.past import run_of, taken

HOURLY = "workflow: noop, everyMs: 3600000"
TOO_LARGE = Reason("payload_too_large", "payload too large")


def file_of(*schedules: str) -> str:
    """A file of schedules that fire each hour; their first window is owed at once."""
    listed = "\n".join(f"- {{workflow: noop, everyMs: 3600000, {each}}}" for each in schedules)
    return f"schedules:\n{listed}"


class Family:
    """The schedules of one file, on one ledger."""

    def __init__(self, bench) -> None:
        self.bench, self.ledger = bench, bench.ledger

    async def declare(self, *schedules: str, **options):
        """Declare schedules, and decide their first windows; returns the runs that start."""
        await self.bench.declare(file_of(*schedules), **options)
        return await self.turn()

    async def turn(self) -> dict[str, Claim]:
        """Let everything happen that can happen now; returns the runs that start, by key."""
        started: dict[str, Claim] = {}
        while True:
            claims = [*await self.bench.claim(), *await taken(self.bench)]
            started |= {claim.key: claim for claim in claims}
            if not await self.ledger.wake() and not claims:
                return started

    async def end(self, claim: Claim, status: str = "completed") -> dict[str, Claim]:
        """Let a claim's run start and end like this; returns the runs that start then."""
        if status == "rejected":
            outcome = Outcome(claim.fire_id, claim.token, "rejected", reason=TOO_LARGE)
            assert await self.ledger.settle([outcome]) == 1
            return await self.turn()
        await run_of(self.bench, claim, f"run of {claim.workflow_id}")
        if status == "lost":
            await self.ledger.lose([claim.workflow_id], "nobody knows it")
            return await self.turn()
        await self.close(claim.workflow_id, f"run of {claim.workflow_id}", status)
        return await self.turn()

    async def close(self, workflow_id: str, run_id: str, status: str = "completed") -> None:
        now = self.bench.now()
        seen = Evidence(workflow_id, run_id, now, closed=status, closed_at=now)  # type: ignore[arg-type] # a word of a close
        assert await self.ledger.record_evidence([seen]) == [workflow_id]

    async def fire(self, key: str) -> Fire:
        """The only fire of a key, requests aside."""
        fires: list[Fire] = await self.ledger.fires(key=key)
        (fire,) = [each for each in fires if each.timing not in {"manual", "rerun", "handler"}]
        return fire

    async def said(self, key: str) -> tuple[str, str | None]:
        """What became of the only window of a key, and why."""
        fire = await self.fire(key)
        return fire.status, fire.reason
