"""Workflows: they decide. What reads or changes something outside is a step."""

from __future__ import annotations

from temporalio.workflow import unsafe

from engine import Context, workflow

# Temporal loads this module again for every run, in a sandbox. The steps, and whatever they
# import, are passed through from the worker instead.
with unsafe.imports_passed_through():
    from activities.greetings import Guest, greet


@workflow(name="hello", version="1")
class Hello:
    """Return a greeting for every window; the Web UI shows the result."""

    async def run(self, ctx: Context, name: str) -> str:
        """Return the greeting of this window."""
        # A run that was started by hand, in the Web UI, has no window.
        window = ctx.fire.fire_time if ctx.scheduled else ctx.now()
        return await ctx.step(greet, Guest(name, window))
