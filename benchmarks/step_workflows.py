"""The two ways to the same work: Temporal's own, and a step. The work does nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import temporalio.workflow
from temporalio import activity

from engine import Context, step, workflow

STEPS = 50
"""Activities of one run."""


@activity.defn
async def bare_nothing(number: int) -> int:
    """Do nothing, as a plain activity."""
    return number


@step(name="step-nothing")
async def step_nothing(number: int) -> int:
    """Do nothing, as a step."""
    return number


@temporalio.workflow.defn(name="BareSteps")
class BareSteps:
    """Calls plain activities, with the one timeout that Temporal demands."""

    @temporalio.workflow.run
    async def run(self) -> None:
        """Call them one after another."""
        for number in range(STEPS):
            await temporalio.workflow.execute_activity(
                bare_nothing, number, start_to_close_timeout=timedelta(minutes=10)
            )


@workflow(name="our-steps")
class OurSteps:
    """Calls steps."""

    async def run(self, ctx: Context) -> None:
        """Call them one after another."""
        for number in range(STEPS):
            await ctx.step(step_nothing, number)


@temporalio.workflow.defn(name="BareTogether")
class BareTogether:
    """Calls plain activities at once."""

    @temporalio.workflow.run
    async def run(self) -> None:
        """Call them, and wait for all."""
        await asyncio.gather(
            *(
                temporalio.workflow.execute_activity(
                    bare_nothing, number, start_to_close_timeout=timedelta(minutes=10)
                )
                for number in range(STEPS)
            )
        )


@workflow(name="our-steps-together")
class OurTogether:
    """Calls steps at once."""

    async def run(self, ctx: Context) -> None:
        """Call them, and wait for all."""
        await ctx.parallel(ctx.step(step_nothing, number) for number in range(STEPS))
