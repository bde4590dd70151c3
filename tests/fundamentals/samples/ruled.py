"""Workflows that say how long a run may take, and how often it is begun again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import temporalio.activity
import temporalio.workflow

from engine import Context, Retry, step, workflow

PATIENT = Retry(max_attempts=3, initial_interval=1, backoff=1)


@workflow(name="third-time-lucky", retry=PATIENT)
class ThirdTimeLucky:
    async def run(self, ctx: Context) -> int:
        attempt = temporalio.workflow.info().attempt
        if attempt < 3:
            raise ValueError(f"attempt {attempt} had no luck")
        return attempt


@workflow(name="too-slow", timeout=1)
class TooSlow:
    async def run(self, ctx: Context) -> None:
        await ctx.sleep(timedelta(hours=1))


@workflow(name="goes-on", timeout=60)
class GoesOn:
    async def run(self, ctx: Context, parts: int) -> None:
        if parts > 1:
            temporalio.workflow.continue_as_new(parts - 1)


@step
async def its_priority() -> int | None:
    return temporalio.activity.info().priority.priority_key


@workflow
class NoLuckYet:
    async def run(self, ctx: Context) -> list[Any]:
        fire = ctx.fire
        if fire.attempt < 3:
            raise ValueError(f"attempt {fire.attempt} had no luck")
        identities = [fire.owner_id, fire.tenant_id, fire.correlation_id, fire.metadata["n"]]
        assert fire.fired_at is not None
        own = temporalio.workflow.info().priority.priority_key
        priorities = [own, await ctx.step(its_priority)]
        return [fire.topic, *identities, fire.max_attempts, *priorities, fire.fired_at.isoformat()]


ALL = [ThirdTimeLucky, TooSlow, GoesOn, NoLuckYet]
