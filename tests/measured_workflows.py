"""Workflows whose runs end in every way that a metric counts."""

from __future__ import annotations

from datetime import timedelta

import temporalio.workflow

from engine import Context, Retry, step, workflow
from engine.events import ScheduleEvent, on


class CardDeclined(Exception):
    """There is no money."""


@step(retry=Retry(max_attempts=2, intervals=[0.1]), queue="narrow")
async def bill_card(attempts_that_fail: int) -> str:
    from temporalio import activity

    if activity.info().attempt <= attempts_that_fail:
        raise CardDeclined("no money")
    return "paid"


@on("schedule.failed")
def note_failure(event: ScheduleEvent) -> None:
    """Gets an event now and then, so that its delivery is counted."""


@workflow(name="pays", version="1", timeout=timedelta(minutes=5))
class Pays:
    """Charges a card, which may fail."""

    async def run(self, ctx: Context, attempts_that_fail: int) -> str:
        return await ctx.step(bill_card, attempts_that_fail)


@workflow(name="lasts", version="1")
class Lasts:
    """Stays open, so that the next window of its schedule has to wait or is skipped."""

    async def run(self, ctx: Context) -> None:
        await temporalio.workflow.sleep(timedelta(hours=1))
