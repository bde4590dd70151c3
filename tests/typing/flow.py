"""Checked by mypy and pyright, never run: what users' type checkers see of workflows and steps.

Each ``type: ignore`` (of mypy) and ``pyright: ignore`` is a promise too: were the mistake accepted,
the type checker would report the comment as unused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_type

from temporalio import activity
from temporalio.client import Client

from engine import Context, FireInfo, Retry, Undo, as_step, given, resource, step, undo, workflow
from engine.service import ScheduleService, Started


@dataclass
class Report:
    rows: int


@step
async def gather() -> list[str]:
    return []


@step(name="write-report", timeout=30, retry=Retry(max_attempts=3))
async def write(rows: list[str]) -> Report:
    return Report(len(rows))


@step(timeout=timedelta(seconds=5))
def count() -> int:
    return 1


@step
def double(number: int) -> int:
    return number * 2


@step
async def optional(text: str = "") -> str:
    return text


@step
async def forget(number: int) -> None: ...


@undo
async def undo_double(number: int) -> None: ...


@undo
async def undo_anything() -> None: ...


@undo
async def undo_with_result(undo: Undo[int, int | None]) -> None: ...


@undo
async def undo_report(undo: Undo[str, Report | None]) -> None: ...


class Pool:
    async def fetch(self) -> list[str]:
        return []


@resource
async def pool() -> AsyncIterator[Pool]:
    yield Pool()


@step
async def store(report: Report, *, pool: Pool = given()) -> int:
    return len(await pool.fetch()) + report.rows


@step
def vacuum(*, pool: Pool = given(pool)) -> bool:
    return bool(pool)


class Archive:
    @step(timeout=30)
    async def keep(self, report: Report, *, pool: Pool = given()) -> str:
        return f"{report} {pool}"

    @undo
    async def drop(self, report: Report) -> None: ...

    @step
    def size(self) -> int:
        return 1


@resource(timeout=5)
async def archive(pool: Pool) -> AsyncIterator[Archive]:
    yield Archive()


assert_type(given(pool), Pool)
assert_type(given(Archive), Archive)


@step
async def wrong_resource(*, pool: int = given(pool)) -> None: ...  # type: ignore[assignment] # pyright: ignore[reportArgumentType]


@resource  # type: ignore[type-var] # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator] # it yields nothing
async def opens_nothing() -> Pool:
    return Pool()


@workflow(name="uses-resources")
class UsesResources:
    async def run(self, ctx: Context, report: Report) -> str:
        assert_type(await ctx.step(store, report), int)
        assert_type(await ctx.step(vacuum), bool)
        await ctx.step(store)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # the input is missing
        await ctx.step(store, 3)  # type: ignore[misc] # pyright: ignore[reportArgumentType] # and it is a report
        await ctx.step(vacuum, Pool())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # the worker gives it
        kept = assert_type(await ctx.step(Archive.keep, report, compensate=Archive.drop), str)
        there = given(Archive)
        assert_type(await ctx.step(there.keep, report, compensate=there.drop, timeout=3), str)
        assert_type(await ctx.step(there.size), int)
        await ctx.step(Archive.keep, 3)  # type: ignore[misc] # pyright: ignore[reportArgumentType]
        await ctx.step(there.keep, 3)  # type: ignore[misc] # pyright: ignore[reportArgumentType]
        await ctx.step(there.keep)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        await ctx.step("gather", lambda: 3)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
        return kept


async def a_test_calls_steps_itself() -> None:
    assert_type(await store(Report(1), pool=Pool()), int)
    assert_type(await Archive().keep(Report(1), pool=Pool()), str)


@activity.defn
async def plain(text: str) -> bytes:
    return text.encode()


@workflow(name="typed", version="2.1")
class Typed:
    async def run(self, ctx: Context, day: str) -> Report:
        rows = assert_type(await ctx.step(gather), list[str])
        assert_type(await ctx.step(count), int)
        assert_type(await ctx.step(double, 2), int)
        assert_type(await ctx.step(double, input=2, retry=Retry(), timeout=3), int)
        assert_type(await ctx.step(optional), str)
        assert_type(await ctx.step(optional, day), str)
        assert_type(await ctx.step(as_step(plain), day), bytes)
        await ctx.step(plain, day)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType] # it is not marked
        await ctx.step(lambda: 3)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType] # no worker knows it
        await ctx.step(lambda text: [text], day)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
        await ctx.step(write, rows, compensate=write)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType] # it cannot undo itself
        await ctx.step(forget, 3, compensate=forget)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
        ctx.on_failure(forget, 3)
        ctx.on_failure(lambda: None)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
        assert_type(ctx.fire, FireInfo)
        assert_type(ctx.fire.local_time, datetime)
        assert_type(ctx.scheduled, bool)
        assert_type(ctx.now(), datetime)
        return assert_type(await ctx.step(write, rows), Report)


@workflow
class Continues:
    async def run(self, ctx: Context, day: str) -> None:
        if day:
            await ctx.continue_as_new(self, day[1:])
        await ctx.continue_as_new(self, 3)  # type: ignore[misc] # pyright: ignore[reportArgumentType] # it takes text


@workflow
class Bare:
    async def run(self, ctx: Context) -> None:
        await ctx.step(write)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # the input is missing
        await ctx.step(write, 3)  # type: ignore[misc] # pyright: ignore[reportArgumentType] # and it is a list of strings
        await ctx.step(count, 3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # takes none
        assert_type(await ctx.step(double, 2, compensate=undo_double), int)
        assert_type(await ctx.step(double, 2, compensate=undo_anything), int)
        assert_type(await ctx.step(gather, compensate=undo_anything), list[str])
        assert_type(await ctx.step(double, 2, compensate=undo_with_result), int)
        assert_type(await ctx.child(Typed, "day", compensate=undo_report), Report)
        assert_type(await ctx.parallel(ctx.step(count), ctx.step(gather)), tuple[int, list[str]])
        assert_type(await ctx.parallel(ctx.step(double, n) for n in range(3)), list[int])
        assert_type(
            await ctx.parallel([ctx.step(count)], return_exceptions=True),
            list[int | BaseException],
        )
        assert_type(await ctx.race(ctx.step(count), ctx.step(double, 2)), int)
        async with ctx.saga(parallel=True, timeout=60):
            await ctx.step(count)
        await ctx.step(double, 2, compensate=undo_report)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # other types
        await ctx.step(double, 2, compensate=write)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType] # takes no number
        await ctx.step(gather, compensate=undo_double)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] # there is no input
        await ctx.step(gather, timeout="10m")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
        await ctx.step(gather, compensation=undo_anything)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue] # misspelt
        await ctx.child(Typed, "x", timout=3)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue] # misspelt
        assert_type(await ctx.step(gather, priority=1, idempotency_key="k", queue="q"), list[str])
        assert_type(await ctx.child(Typed, "2026-11-21"), Report)
        await ctx.child(Typed)  # type: ignore[arg-type] # pyright: ignore[reportCallIssue, reportArgumentType] # the input is missing
        await ctx.child(Typed, 3)  # type: ignore[misc] # pyright: ignore[reportCallIssue, reportArgumentType] # and it is text
        assert_type(await ctx.parallel([ctx.step(count), ctx.step(double, 2)], limit=1), list[int])
        assert_type(await ctx.wait_for("approve", Report, timeout=60), Report)


@workflow  # pyright: ignore[reportArgumentType, reportUntypedClassDecorator]
class NotAsync:  # type: ignore[type-var] # run is not async
    def run(self, ctx: Context) -> None: ...


@workflow(name="no-context")  # pyright: ignore[reportArgumentType, reportUntypedClassDecorator]
class NoContext:  # type: ignore[type-var] # and this one has no ctx
    async def run(self) -> None: ...


@workflow(name="wrong-context")  # pyright: ignore[reportArgumentType, reportUntypedClassDecorator]
class WrongContext:  # type: ignore[type-var]
    async def run(self, ctx: str, day: str) -> None: ...


@workflow(name="no-run")  # pyright: ignore[reportArgumentType, reportUntypedClassDecorator]
class NoRun: ...  # type: ignore[type-var]


async def decorated_functions_keep_their_types(client: Client) -> None:
    assert_type(await gather(), list[str])
    assert_type(double(2), int)
    assert_type(Bare(), Bare)
    assert_type(await Typed().run(Context(), "2026-11-21"), Report)
    assert_type(
        await client.execute_workflow(Typed.run, args=["x"], id="x", task_queue="q"), Report
    )
    await client.start_workflow(Typed.run, args=["x"], id="x", task_queue="q")
    double("2")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    step(retries=3)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue] # no such option
    workflow(name=1)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]
    Retry(5)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue] # keywords only: is 5 attempts or seconds?


async def a_start_by_an_application_has_the_input_of_its_class(service: ScheduleService) -> None:
    started = assert_type(await service.start(Typed, "2026-11-21", id="x"), Started[Report])
    assert_type(await started.result(), Report)
    assert_type(
        await service.signal_or_start(Typed, "day", id="x", signal="go", value=3, priority=1),
        Started[Report],
    )
    await service.start(Bare, id="x", delay=60, fairness="acme", retry=Retry(max_attempts=2))
    await service.start(Bare, id="x", prioirty=1)  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    await service.start(Bare, id="x", project="shop", task_queue="q", wait=timedelta(seconds=5))
    await service.start("typed", {"any": "thing"}, id="x", wait=5)
    await service.start("typed@1", id="x")
    await service.start(Typed, 2, id="x")  # type: ignore[misc] # pyright: ignore[reportArgumentType, reportCallIssue]
    await service.start(Typed, id="x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType, reportCallIssue]
    await service.start(Bare, "x", id="x")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType, reportCallIssue]
    await service.start(Typed, "x")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue] # each start has an id
    await service.start(Bare, id="x", queue="q")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]
    await service.start(gather, id="x")  # type: ignore[call-overload] # pyright: ignore[reportArgumentType, reportCallIssue]
