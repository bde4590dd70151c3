"""The workflow that most tests start, alone: each run loads its module again, in the sandbox."""

from __future__ import annotations

from engine import Context, workflow


@workflow(name="noop", version="1")
class Noop:
    """Ends at once and returns what it was given."""

    async def run(self, ctx: Context, payload: dict[str, str] | None = None) -> str:
        return f"{ctx.fire.key} {payload}"
