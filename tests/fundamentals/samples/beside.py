"""Workflows with local steps, and one with a versioning behavior."""

from __future__ import annotations

from temporalio import activity
from temporalio.common import VersioningBehavior

from engine import Context, Retry, step, step_info, undo, workflow

TRIED: list[int] = []


@step(name="beside-look", retry=Retry(max_attempts=3, initial_interval=0.01))
async def look(what: str) -> list[str]:
    TRIED.append(activity.info().attempt)
    if len(TRIED) < 3:
        raise ConnectionError("not yet")
    return [what, str(activity.info().is_local), step_info().idempotency_key]


@undo(name="beside-forget")
async def forget(what: str) -> None: ...


@step(name="beside-take")
async def take(what: str) -> str:
    return what


@workflow(name="looks")
class Looks:
    async def run(self, ctx: Context) -> list[list[str]]:
        return [
            await ctx.step(look, "a", local=True),
            await ctx.step(look, "b", local=True, summary="again", deadline=60),
        ]


@workflow(name="misuses-local")
class MisusesLocal:
    async def run(self, ctx: Context, way: str) -> None:
        match way:
            case "compensate":
                await ctx.step(take, "x", local=True, compensate=forget)
            case "on_failure":
                ctx.on_failure(forget, "x", local=True)
            case "queue":
                await ctx.step(take, "x", local=True, queue="emails")


@workflow(
    name="pinned",
    versioning_behavior=VersioningBehavior.PINNED,
    compensate_on_terminate=True,
)
class Pinned:
    async def run(self, ctx: Context, what: str) -> str:
        taken = await ctx.step(take, what, compensate=forget)
        if what == "wait":
            await ctx.wait_for("go")
        return taken


ALL = [Looks, MisusesLocal, Pinned]
STEPS = [look, forget, take]
