"""What ``--help`` says beyond each command's own words: examples."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

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
    "fires": (
        "sched fires",
        "sched fires heartbeat -n 100",
        "sched fires --status failed --json",
        "sched fires nightly-report --follow",
    ),
    "log": ("sched log", "sched log nightly-report --limit 100 --json"),
    "pause": (
        'sched pause nightly-report --reason "the warehouse moves"',
        "sched pause cache-sync --reason deploy --until 2026-11-22T06:00:00Z",
    ),
    "resume": (
        "sched resume nightly-report",
        "sched resume cache-sync --catch-up latest",
        "sched resume cache-sync --catch-up all --max 50 --rate 5/1s --order newest",
    ),
    "trigger": (
        "sched trigger nightly-report",
        "sched trigger nightly-report --request-id ticket-4711 --overlap queue",
        """sched trigger nightly-report --input '{"format": "pdf"}'""",
    ),
    "rerun": (
        "sched rerun nightly-report 1795312800000",
        """sched rerun nightly-report 1795312800000 --input '{"format": "pdf"}'""",
    ),
    "skip": (
        "sched skip nightly-report --at 2026-12-25T05:00:00Z --reason holiday",
        "sched skip nightly-report --at 2026-12-25T02:00:00-03:00",
    ),
    "unskip": ("sched unskip nightly-report --at 2026-12-25T05:00:00Z",),
    "cancel": (
        "sched cancel nightly-report",
        "sched cancel sched:nightly-report:1795312800000 --terminate --reason stuck",
    ),
    "backfill": (
        "sched backfill nightly-report --from 2026-11-01 --to 2026-11-20",
        "sched backfill cache-sync --from 2026-11-20 --to 2026-11-21 --overlap queue",
        "sched backfill cache-sync --from 2026-11-20 --to 2026-11-21 --wait",
        "sched backfill payouts --from 2026-11-01 --to 2026-11-20 --dry-run",
        "sched backfill payouts --from 2026-11-01 --to 2026-11-20 --include excluded",
    ),
    "dead": (
        "sched dead list",
        "sched dead show nightly-report 1795312800000",
        "sched dead rerun nightly-report 1795312800000",
        "sched dead drop --all nightly-report --reason 'the archive has them'",
    ),
    "dead list": ("sched dead list", "sched dead list nightly-report --json"),
    "dead show": (
        "sched dead show nightly-report 1795312800000",
        "sched dead show sched:nightly-report:1795312800000:rerun:1",
    ),
    "dead rerun": (
        "sched dead rerun nightly-report 1795312800000",
        """sched dead rerun nightly-report 1795312800000 --input '{"format": "pdf"}'""",
    ),
    "dead drop": (
        "sched dead drop nightly-report 1795312800000",
        "sched dead drop --all nightly-report --reason 'the archive has them'",
        "sched dead drop --all",
    ),
    "check": (
        "sched check",
        "sched check other.yaml --json",
        "sched check --import workflows",
    ),
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
    "history": (
        "sched history export nightly-report --limit 20 --out histories",
        "sched history export sched:nightly-report:1795312800000",
    ),
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

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        _write_examples(ctx, formatter)


class Group(TyperGroup):
    """A group of commands, whose help ends with examples too."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        _write_examples(ctx, formatter)


def _write_examples(ctx: Any, formatter: Any) -> None:
    """Write those of the command that was asked, by its words after ``sched``."""
    with formatter.section("Examples"):
        for line in EXAMPLES[ctx.command_path.partition(" ")[2]]:
            formatter.write(f"  {line}\n")


def dress(app: typer.Typer) -> None:
    """Give every command of the application its examples."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance:
            dress(group.typer_instance)
