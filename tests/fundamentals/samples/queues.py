"""Workflows whose steps wait in queues; what ran is in this module, outside the sandbox."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from temporalio import workflow as temporal

with temporal.unsafe.imports_passed_through():
    from engine import Context, Retry, step, workflow


@dataclass
class Seen:
    """What the steps of one test did."""

    order: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    running: int = 0
    most: int = 0
    of_tenant: Counter[str] = field(default_factory=Counter)
    most_of_tenant: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)


seen = Seen()


def fresh() -> Seen:
    """Forget what earlier tests did."""
    seen.__init__()  # type: ignore[misc] # the module's name for it stays the same
    return seen


@step(name="queued-send", queue="emails")
async def send(name: str) -> str:
    seen.order.append(name)
    seen.running += 1
    seen.most = max(seen.most, seen.running)
    tenant = name.split(maxsplit=1)[0]
    seen.of_tenant[tenant] += 1
    seen.most_of_tenant = max(seen.most_of_tenant, seen.of_tenant[tenant])
    try:
        await seen.go_on.wait()
        await asyncio.sleep(0.01)  # so that steps are side by side where nothing hinders them
        seen.done.append(name)
    finally:
        seen.running -= 1
        seen.of_tenant[tenant] -= 1
    return name


@workflow
class Sends:
    async def run(self, ctx: Context, names: list[str]) -> list[str]:
        return await ctx.parallel([ctx.step(send, name) for name in names])


@workflow
class SendsOne:
    async def run(self, ctx: Context, name: str) -> str:
        return await ctx.step(send, name)


@workflow
class SendsUrgently:
    async def run(self, ctx: Context, name: str) -> str:
        return await ctx.step(send, name, priority=1)


@workflow
class SendsElsewhere:
    async def run(self, ctx: Context, name: str) -> str:
        return await ctx.step(send, name, queue="texts")


@workflow
class SendsForTenants:
    async def run(self, ctx: Context, names: list[str]) -> list[str]:
        calls = [ctx.step(send, name, fairness=name.split()[0]) for name in names]
        return await ctx.parallel(calls)


@step(name="queued-print", queue="emails")
def print_page(name: str) -> str:
    seen.done.append(name)
    return name


@workflow
class Prints:
    async def run(self, ctx: Context, name: str) -> str:
        return await ctx.step(
            print_page, name, fairness=name.split(maxsplit=1)[0], timeout=2, retry=ONCE
        )


@workflow
class SendsBriefly:
    async def run(self, ctx: Context, name: str) -> str:
        return await ctx.step(send, name, fairness=name.split(maxsplit=1)[0], timeout=2, retry=ONCE)


ONCE = Retry(max_attempts=1)
STEPS: list[Any] = [send, print_page]
ALL = [Sends, SendsOne, SendsUrgently, SendsElsewhere, SendsForTenants, SendsBriefly, Prints]
