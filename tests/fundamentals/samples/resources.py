"""Steps that are given a pool, and steps that are methods of a bank."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass

from engine import Context, Retry, given, resource, step, undo, workflow

EVENTS: list[str] = []
RELEASED = threading.Event()
ONCE = Retry(max_attempts=1)


@dataclass
class Payment:
    customer: str
    cents: int = 1


class Pool:
    """Stands for a pool of connections."""

    made = 0

    def __init__(self) -> None:
        Pool.made += 1
        self.number = Pool.made


class Bank:
    """An object whose methods are steps."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    @step(timeout=30, retry=ONCE)
    async def pay(self, payment: Payment, *, pool: Pool = given()) -> str:
        EVENTS.append(f"pay {payment.customer}")
        if payment.cents > 100:
            raise ValueError("too much")
        return f"{payment.customer} by pool {self.pool.number} and {pool.number}"

    @undo(retry=ONCE)
    async def give_back(self, payment: Payment) -> None:
        EVENTS.append(f"give back {payment.customer}")

    @step(retry=ONCE)
    def balance(self) -> int:
        return self.pool.number


@resource
async def pool() -> AsyncIterator[Pool]:
    EVENTS.append("open pool")
    yield Pool()
    EVENTS.append("close pool")


@resource
async def bank(pool: Pool) -> AsyncIterator[Bank]:
    EVENTS.append(f"open bank on pool {pool.number}")
    yield Bank(pool)
    EVENTS.append("close bank")


@resource
async def unused() -> AsyncIterator[int]:
    EVENTS.append("open unused")
    yield 1


@step(retry=ONCE)
async def look(payment: Payment, *, pool: Pool = given()) -> int:
    return pool.number * payment.cents


@step(name="count-in-thread", retry=ONCE)
def count(*, pool: Pool = given()) -> int:
    return pool.number


@step(queue="narrow", retry=ONCE)
async def queued(*, pool: Pool = given(pool)) -> int:
    return pool.number


@step(retry=ONCE)
async def lingers(*, pool: Pool = given(pool)) -> None:
    EVENTS.append("lingers")
    await asyncio.to_thread(RELEASED.wait)
    EVENTS.append(f"lingered with pool {pool.number}")


at_bank = given(Bank)


@workflow
class UsesPool:
    async def run(self, ctx: Context, payment: Payment) -> list[int]:
        return [await ctx.step(look, payment), await ctx.step(count)]


@workflow
class UsesBank:
    async def run(self, ctx: Context, payments: list[Payment]) -> list[str]:
        paid = [
            await ctx.step(Bank.pay, each, compensate=at_bank.give_back, timeout=10)
            for each in payments
        ]
        return [*paid, str(await ctx.step(at_bank.balance))]


@workflow
class UsesQueue:
    async def run(self, ctx: Context) -> list[int]:
        return [await ctx.step(count), await ctx.step(queued)]


@workflow
class Lingers:
    async def run(self, ctx: Context) -> None:
        await ctx.step(lingers)


ALL: list[type] = [UsesPool, UsesBank, UsesQueue, Lingers]
FUNCTIONS = [look, count, queued, lingers]
METHODS = [Bank.pay, Bank.give_back, Bank.balance]
