"""A workflow with its schedules beside it."""

from __future__ import annotations

from engine import Context, cron, every, workflow


@workflow(
    schedule=[
        every("1d", firstFire="now", input={"rows": 3}),
        cron("0 2 * * *", timezone="America/Sao_Paulo", key="declared-nightly"),
        every("1h", enabled=False),
    ]
)
class DeclaredReport:
    """Counts its rows."""

    async def run(self, ctx: Context, counts: dict[str, int]) -> int:
        return counts["rows"]


HERE = "tests/fundamentals/samples/declared.py"
