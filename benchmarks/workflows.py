"""The workflow that every contestant starts: it ends at once, so only starting is measured."""

from __future__ import annotations

from engine import Context, workflow

TYPE = "bare@1"


@workflow(name="bare", version="1")
class Noop:
    """Does nothing."""

    async def run(self, ctx: Context) -> None:
        """End at once."""
