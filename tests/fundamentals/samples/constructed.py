"""A workflow with a constructor, all of whose parameters may be left out."""

from __future__ import annotations

from engine import Context, workflow


@workflow
class Constructed:
    """Knows how often it is to try."""

    def __init__(self, retries: int = 3, *more: object, **others: object) -> None:
        self.retries, self.more, self.others = retries, more, others

    async def run(self, ctx: Context) -> int:
        return self.retries
