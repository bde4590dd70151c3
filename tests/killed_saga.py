"""A saga whose worker kills itself at a given place; test_killed_saga.py restarts the worker."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity
from temporalio.workflow import unsafe

from engine import Context, Retry, step, step_info, undo, workflow

with unsafe.imports_passed_through():
    import asyncpg

TABLE = """
CREATE TABLE effects (
    id serial, name text NOT NULL, key text PRIMARY KEY, at timestamptz DEFAULT clock_timestamp()
)
"""


@dataclass
class Plan:
    """Where the worker dies: in which step or undo, and before, in or after its effect."""

    step: str
    moment: str

    def die(self, step: str, moment: str) -> None:
        own = self.moment == "own"  # only where the run undoes itself
        if own and str(step_info().workflow_id).endswith(":undo"):
            return
        here = (self.step, "after" if own else self.moment)
        if here == (step, moment) and activity.info().attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)


async def act(name: str, plan: Plan) -> None:
    """Have one effect, once for all attempts."""
    plan.die(name, "before")
    connection = await asyncpg.connect(os.environ["SCHED_DATABASE_URL"])
    try:
        async with connection.transaction():
            await connection.execute(
                "INSERT INTO effects (name, key) VALUES ($1, $2) ON CONFLICT DO NOTHING",
                name,
                _key(),
            )
            plan.die(name, "in")
        plan.die(name, "after")
    finally:
        await connection.close()


def _key() -> str:
    """Which effect this is: an undo is the same whoever takes the step back."""
    info = step_info()
    return f"undo of {info.undoes}" if info.undoes else info.idempotency_key


PATIENT = Retry(initial_interval=0.1, max_interval=1)


@step(heartbeat=1, retry=PATIENT)
async def reserve_seat(plan: Plan) -> None:
    await act("reserve", plan)


@undo(heartbeat=1, retry=PATIENT)
async def release_seat(plan: Plan) -> None:
    await act("release", plan)


@step(heartbeat=1, retry=PATIENT)
async def charge_account(plan: Plan) -> None:
    await act("charge", plan)


@undo(heartbeat=1, retry=PATIENT)
async def refund_account(plan: Plan) -> None:
    await act("refund", plan)


@step(heartbeat=1, retry=PATIENT)
async def send_ticket(plan: Plan) -> None:
    await act("send", plan)


@undo(heartbeat=1, retry=PATIENT)
async def void_ticket(plan: Plan) -> None:
    await act("void", plan)


@step(heartbeat=1, retry=Retry(intervals=[1, 3, 3]))
async def dial() -> None:
    """Fail at first, die with the second attempt, fail again, and succeed."""
    attempt = activity.info().attempt
    connection = await asyncpg.connect(os.environ["SCHED_DATABASE_URL"])
    try:
        row = f"attempt {attempt}"
        await connection.execute("INSERT INTO effects (name, key) VALUES ($1, $1)", row)
    finally:
        await connection.close()
    if attempt == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if attempt < 4:
        raise ConnectionError("busy")


@workflow
class KilledRetry:
    async def run(self, ctx: Context) -> None:
        await ctx.step(dial)


@workflow
class KilledSaga:
    async def run(self, ctx: Context, plan: Plan) -> None:
        await ctx.step(reserve_seat, plan, compensate=release_seat)
        await ctx.step(charge_account, plan, compensate=refund_account)
        await ctx.step(send_ticket, plan, compensate=void_ticket)
        raise LookupError("there is no such train")


@workflow(compensate_on_terminate=True)
class KilledUndo:
    async def run(self, ctx: Context, plan: Plan) -> None:
        await ctx.step(reserve_seat, plan, compensate=release_seat)
        await ctx.step(charge_account, plan, compensate=refund_account)
        await ctx.step(send_ticket, plan, compensate=void_ticket)
        if plan.moment == "own":
            raise LookupError("there is no such train")
        await ctx.sleep(timedelta(hours=1))
