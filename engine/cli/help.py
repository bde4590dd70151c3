"""What ``--help`` says beyond each command's own words: examples."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand

EXAMPLES = {
    "init": ("sched init", "sched init demo"),
    "up": (
        "sched up",
        "sched up --schedules other.yaml --data-dir .other",
        "sched up --temporal-port 17233 --ui-port 18233 --postgres-port 15433",
    ),
    "worker": (
        "sched worker",
        "sched worker --schedules /etc/sched/schedules.yaml --task-queue reports",
        "sched worker --import jobs.workflows --import jobs.steps",
    ),
    "list": ("sched list", "sched list --project billing --json"),
    "show": ("sched show heartbeat", "sched show heartbeat --json"),
    "next": (
        "sched next",
        "sched next nightly-report -n 3",
        "sched next --from 2026-12-31",
        'sched next --cron "0 2 * * *" --timezone America/Sao_Paulo',
    ),
    "fires": ("sched fires", "sched fires heartbeat -n 100", "sched fires --status failed --json"),
    "check": ("sched check", "sched check other.yaml --json"),
    "plan": ("sched plan", "sched plan other.yaml --prune --json"),
    "at": (
        "sched at 2026-12-24T18:00Z greeting",
        "sched at 2026-12-24T18:00 greeting --timezone Europe/Berlin --key wishes",
        "sched at 2027-01-02T09:00Z invoice-run --request-id inv-12 --input '[12]'",
    ),
    "reschedule": (
        "sched reschedule wishes 2026-12-24T17:00Z",
        "sched reschedule wishes --every 1h",
    ),
    "apply": ("sched apply", "sched apply other.yaml --prune"),
    "migrate": ("sched migrate",),
    "schema": ("sched schema",),
    "simulate": (
        "sched simulate --from 2026-12-01 --to 2027-01-01",
        "sched simulate --from 2026-12-24T06:00Z --to 2026-12-25 --html load.html",
    ),
}


class Command(TyperCommand):
    """A command whose help ends with examples, each on a line that can be copied."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Write what must be given as KEY beside [KEY]; typer alone writes {KEY}."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's signature
        """Write the examples."""
        with formatter.section("Examples"):
            for line in EXAMPLES[self.name or ""]:
                formatter.write(f"  {line}\n")


def dress(app: typer.Typer) -> None:
    """Give every command of the application its examples."""
    for command in app.registered_commands:
        command.cls = Command
