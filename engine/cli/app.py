"""Command-line application: commands, help and exit codes."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from engine import __version__
from engine.errors import (
    Code,
    EngineError,
    ScheduleFileError,
    SettingsInvalid,
    WorkflowInvalid,
    error_json,
)
from engine.safe_text import SafeStream, escaped, json_text

# --- help texts ---
# Examples that ``--help`` adds to each command's own text.

EXAMPLES = {
    "init": ("sched init", "sched init demo"),
    "up": (
        "sched up",
        "sched up --no-reload",
        "sched up --schedules other.yaml --data-dir .other",
        "sched up --temporal-port 17233 --ui-port 18233 --postgres-port 15433",
    ),
    "worker": (
        "sched worker",
        "sched worker --schedules /etc/sched/schedules.yaml --task-queue reports",
        "sched worker --import jobs.workflows --import jobs.steps",
    ),
    "watch": ("sched watch",),
    "api": ("sched api", "sched api --host 0.0.0.0 --port 8230"),
    "status": ("sched status", "sched status --json"),
    "doctor": ("sched doctor", "sched doctor --json"),
    "queues": ("sched queues", "sched queues --json"),
    "workers": ("sched workers", "sched workers --json"),
    "list": ("sched list", "sched list --project billing --json", "sched list --wide"),
    "show": (
        "sched show heartbeat",
        "sched show heartbeat --json",
        "sched show heartbeat --at 2026-11-21T10:00:00Z",
    ),
    "next": (
        "sched next",
        "sched next nightly-report -n 3",
        "sched next --from 2026-12-31",
        "sched next nightly-report --from -1h",
        'sched next --cron "0 2 * * *" --timezone America/Sao_Paulo',
    ),
    "fires": (
        "sched fires",
        "sched fires heartbeat -n 100",
        "sched fires --status failed --json",
        "sched fires nightly-report --follow",
        "sched fires sched:nightly-report:1795312800000 --follow",
    ),
    "audit": (
        "sched audit",
        "sched audit --since 7d --against temporal",
        "sched audit nightly-report --since 2026-11-01 --json",
    ),
    "explain": (
        "sched explain nightly-report 2026-11-22T05:00:00Z",
        "sched explain nightly-report 05:00",
        "sched explain nightly-report 2026-11-22T02:00:00-03:00 --json",
    ),
    "compare": (
        "sched compare --since 7d",
        "sched compare nightly-report --against schedule:nightly --json",
        "sched compare nightly-report --against type:NightlyReport --tolerance 30s",
    ),
    "takeover": (
        "sched takeover nightly-report",
        "sched takeover nightly-report --temporal-schedule nightly --reason move",
    ),
    "move": (
        "sched move",
        "sched move --close",
        "sched move --old-is-gone",
    ),
    "log": ("sched log", "sched log nightly-report --limit 100 --json"),
    "events": (
        "sched events",
        "sched events nightly-report --name 'schedule.*.arrived' --json",
        "sched events --follow",
        "sched events --dead",
    ),
    "pause": (
        'sched pause nightly-report --reason "the warehouse moves"',
        "sched pause cache-sync --reason deploy --until 2h",
        "sched pause --tag billing --reason 'the bank is away' --yes",
        "sched pause 'billing.*' --reason incident --until 2026-11-22T06:00:00Z",
    ),
    "resume": (
        "sched resume nightly-report",
        "sched resume --tag billing --yes",
        "sched resume cache-sync --catch-up latest",
        "sched resume cache-sync --catch-up all --max 50 --rate 5/1s --order newest",
    ),
    "retire": (
        "sched retire wishes",
        "sched retire --project old-billing --reason 'it moved to the new cluster'",
        "sched retire --project old-billing --forget --yes",
    ),
    "trigger": (
        "sched trigger nightly-report",
        "sched trigger nightly-report --wait --timeout 10m",
        "sched trigger nightly-report --request-id ticket-4711 --overlap queue",
        """sched trigger nightly-report --input '{"format": "pdf"}'""",
    ),
    "rerun": (
        "sched rerun nightly-report 1795312800000",
        "sched rerun nightly-report --at 2026-11-22T05:00:00Z",
        """sched rerun nightly-report 1795312800000 --input '{"format": "pdf"}'""",
    ),
    "skip": (
        "sched skip nightly-report --reason holiday",
        "sched skip nightly-report --at 2026-12-25T05:00:00Z --reason holiday",
        "sched skip nightly-report --at 2026-12-25T02:00:00-03:00",
    ),
    "unskip": ("sched unskip nightly-report --at 2026-12-25T05:00:00Z",),
    "cancel": (
        "sched cancel nightly-report",
        "sched cancel sched:nightly-report:1795312800000 --terminate --reason stuck",
        "sched cancel --tag billing --reason 'the bank is away' --yes",
    ),
    "backfill": (
        "sched backfill nightly-report --from 2026-11-01 --to 2026-11-20",
        "sched backfill cache-sync --from 2026-11-20 --to 2026-11-21 --overlap queue",
        "sched backfill cache-sync --from 2026-11-20 --to 2026-11-21 --yes --wait",
        "sched backfill payouts --from 2026-11-01 --to 2026-11-20 --dry-run",
        "sched backfill payouts --from 2026-11-01 --to 2026-11-20 --include excluded",
    ),
    "dead": (
        "sched dead list",
        "sched dead show nightly-report 1795312800000",
        "sched dead rerun nightly-report 1795312800000",
        "sched dead drop --all nightly-report --reason 'the archive has them'",
    ),
    "dead list": (
        "sched dead list",
        "sched dead list nightly-report --json",
        "sched dead list --failing",
    ),
    "dead show": (
        "sched dead show nightly-report 1795312800000",
        "sched dead show sched:nightly-report:1795312800000:rerun:1",
    ),
    "dead rerun": (
        "sched dead rerun nightly-report 1795312800000",
        """sched dead rerun nightly-report 1795312800000 --input '{"format": "pdf"}'""",
        "sched dead rerun --all --tag billing --reason 'the bank is back' --yes",
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
        "sched check --no-import",
    ),
    "plan": ("sched plan", "sched plan other.yaml --prune --json"),
    "at": (
        "sched at 2026-12-24T18:00Z greeting",
        "sched at +10m greeting",
        "sched at 2026-12-24T18:00 greeting --timezone Europe/Berlin --key wishes",
        "sched at 2027-01-02T09:00Z invoice-run --request-id inv-12 --input '[12]'",
    ),
    "reschedule": (
        "sched reschedule wishes 2026-12-24T17:00Z",
        "sched reschedule wishes --every 1h",
    ),
    "start": (
        """sched start fulfil-order 4711 --input '{"item": "a book"}'""",
        "sched start fulfil-order@1 4711 --wait 30s",
    ),
    "apply": ("sched apply", "sched apply other.yaml --prune"),
    "token": (
        "sched token create dashboard",
        "sched token list",
        "sched token revoke dashboard",
    ),
    "token create": (
        "sched token create dashboard --scope read",
        "sched token create billing --scope admin --keys 'billing.*' --expires 90d",
    ),
    "token list": ("sched token list", "sched token list --json"),
    "token revoke": ("sched token revoke billing",),
    "history": (
        "sched history export nightly-report --limit 20 --out histories",
        "sched history export sched:nightly-report:1795312800000",
    ),
    "versions": ("sched versions", "sched versions fulfil --json"),
    "import": (
        "sched import crontab my.crontab > schedules.yaml",
        "sched import temporal-schedules --shadow > schedules.yaml",
    ),
    "import crontab": (
        "sched import crontab my.crontab > schedules.yaml",
        "sched import crontab /etc/crontab --timezone Europe/Berlin",
    ),
    "import systemd-timer": (
        "sched import systemd-timer backup.timer backup.service > schedules.yaml",
        "sched import systemd-timer /etc/systemd/system/backup.timer --timezone Europe/Berlin",
    ),
    "import github-workflow": (
        "sched import github-workflow .github/workflows/*.yml > schedules.yaml",
    ),
    "import quartz": ("sched import quartz quartz_data.xml > schedules.yaml",),
    "import sidekiq": ("sched import sidekiq config/schedule.yml > schedules.yaml",),
    "import cloud-schedules": (
        "sched import cloud-schedules eventbridge.json > schedules.yaml",
        "sched import cloud-schedules cloud-scheduler.json --shadow > schedules.yaml",
    ),
    "import k8s-cronjob": (
        "sched import k8s-cronjob cronjobs.yaml > schedules.yaml",
        "sched import k8s-cronjob cronjobs.yaml --project shop --json",
    ),
    "import celery-beat": (
        "sched import celery-beat shop.celery:app > schedules.yaml",
        "sched import celery-beat beat.json --timezone Europe/Berlin",
    ),
    "import apscheduler": ("sched import apscheduler shop.jobs:scheduler > schedules.yaml",),
    "import temporal-schedules": (
        "sched import temporal-schedules > schedules.yaml",
        "sched import temporal-schedules --temporal-address 127.0.0.1:7233 --prefix billing-",
    ),
    "migrate": ("sched migrate",),
    "schema": ("sched schema",),
    "docs": ("sched docs", "sched docs schedules", "sched docs operating#watch"),
    "simulate": (
        "sched simulate --from 2026-12-01 --to 2027-01-01",
        "sched simulate --from 2026-12-24T06:00Z --to 2026-12-25 --html load.html",
    ),
}


class _WithExamples:
    """Help of a command that ends with examples, each on a line that can be copied."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples of the current command, found by its path after ``sched``."""
        with formatter.section("Examples"):
            for line in EXAMPLES[ctx.command_path.partition(" ")[2]]:
                formatter.write(f"  {line}\n")


class Command(_WithExamples, TyperCommand):
    """Command whose help ends with examples."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return a required argument as KEY, like an optional [KEY]; typer alone writes {KEY}."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


class Group(_WithExamples, TyperGroup):
    """Group of commands whose help ends with examples."""


def dress(app: typer.Typer) -> None:
    """Add examples to every command of the application."""
    for command in app.registered_commands:
        command.cls = Command
    for group in app.registered_groups:
        group.cls = Group
        if group.typer_instance:
            dress(group.typer_instance)


# --- commands ---
# The list of commands. Listing or completing them needs only names and purposes, so the module of a
# command is imported when the command itself is used: imports take longer than many commands.

_COMMANDS = {
    "api": "api token",
    "audit": "audit explain",
    "backfill": "backfill",
    "dead": "dead",
    "docs": "docs",
    "events": "events",
    "files": "check apply plan migrate schema",
    "imports": "import",
    "init": "init",
    "inspect": "list fires log",
    "next": "next",
    "one_shots": "at reschedule start",
    "operate": "pause resume retire trigger rerun skip unskip cancel",
    "runs": "history versions",
    "show": "show",
    "simulate": "simulate",
    "status": "status workers queues doctor",
    "takeover": "compare takeover move",
    "up.up": "up worker watch",
}
MODULES = {name: module for module, names in _COMMANDS.items() for name in names.split()}
"""The module of ``engine.cli`` that has each command."""

GROUPS = {
    "Run": {
        "init": "Create a small project that is ready to run.",
        "up": "Run everything locally: two servers, the schedules and one worker.",
        "worker": "Run one worker against existing servers.",
        "watch": "Watch the ledger, and alert when windows do not fire. Needs no worker.",
        "api": "Serve the REST API and a page for operators. Needs no worker.",
    },
    "Look": {
        "status": "Show on one screen whether all is well, and if not, what is wrong and why.",
        "doctor": "Examine the installation: each line is good, or has a hint.",
        "queues": "Show every step queue: its limits, and how many of its steps run now.",
        "workers": "Show every worker: what it serves, and when it last announced itself.",
        "list": "Show every schedule: its workflow, times, state and last run.",
        "show": "Show one schedule: its definition, state, last and next fires, and links.",
        "next": "Show the next fire of each schedule, or the next fires of one.",
        "fires": "Show what became of each window, newest first.",
        "log": "Show the actions on schedules and runs, newest first.",
        "events": "Show events of fires and schedules, newest first.",
        "audit": "Check that the ledger has exactly the windows that every schedule owed.",
        "explain": "Explain what was decided about one window, and why.",
        "compare": "Compare windows with the runs that another scheduler has started.",
    },
    "Act": {
        "pause": "Pause a schedule until it is resumed. A deploy does not resume it.",
        "resume": "Resume a paused schedule. Missed windows start only on request.",
        "retire": "Retire schedules that no file declares, or all of a project that is no more.",
        "trigger": "Start a run now, in addition to the schedule's windows.",
        "rerun": "Start another run of a window.",
        "skip": "Skip the window of --at, or else the next one, before its run is sent.",
        "unskip": "Undo the skip of the window of --at, or else of the next one.",
        "cancel": "Cancel a run, every open run of a schedule, or a schedule that is in no file.",
        "backfill": "Start runs for past windows that had none.",
        "dead": "Show, rerun or discard dead letters: fires that failed.",
        "takeover": "Let a native Temporal Schedule end where the shadow mode of a schedule does.",
    },
    "Declare": {
        "check": "Report every problem of a schedule file. Needs no server.",
        "plan": "Show what applying a schedule file would change, and which fires move.",
        "apply": "Apply a schedule file to the ledger.",
        "import": "Write schedules of other schedulers as a schedule file. Needs no ledger.",
    },
    "Ask": {
        "at": "Start a workflow once, at a future time.",
        "reschedule": "Change the times of a schedule that `sched at` or an application made.",
        "start": "Start a workflow once for its ID, as applications do, now or at a moment.",
    },
    "Maintain": {
        "migrate": "Bring the ledger's schema up to date.",
        "schema": "Print the JSON Schema of the schedule file, for editors.",
        "token": "Make, list and revoke tokens of the REST API.",
        "history": "Export histories of runs, to replay them against new code.",
        "move": "Let the ledger belong to the Temporal namespace that TEMPORAL_* name.",
        "versions": "List versions of workflows with their open runs, and which can be removed.",
        "simulate": "Simulate a schedule file between two moments. Needs no server.",
        "docs": "Print a page of the documentation. Without PAGE, the list of pages.",
    },
}
"""The commands in groups, each with its purpose, which is the first line of its own help."""


class Commands(TyperGroup):
    """List of commands, in groups."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {
            name: TyperCommand(name=name, help=purpose)
            for group in GROUPS.values()
            for name, purpose in group.items()
        }

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Load the command that the list names."""
        name, listed, rest = super().resolve_command(ctx, args)
        for each in rest:
            _require_text(each)
        return name, listed and load(str(listed.name)), rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's signature
        """Write each group under its heading."""
        widest = max(map(len, self.commands))
        for heading, group in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(widest), text) for name, text in group.items()])


def _require_text(argument: str) -> None:
    """Refuse non-UTF-8 text, which the database and Temporal reject, unless it names a file."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        if not Path(argument).exists():
            raise typer.BadParameter(f"{argument!r} is not UTF-8") from None


def load(name: str) -> TyperCommand | TyperGroup:
    """Load a command or a group of commands.

    The garbage collector rests meanwhile: modules leave no garbage, and looking for it takes a
    tenth of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        commands: typer.Typer = import_module(f"engine.cli.{MODULES[name]}").commands
    finally:
        if collects:
            gc.enable()
    dress(commands)
    command = typer.main.get_group(commands).commands[name]
    assert isinstance(command, TyperCommand | TyperGroup)  # noqa: S101 - `dress` has made it one
    return command


# --- application ---
# The application: options shared by all commands, error output and exit codes.

app = typer.Typer(
    name="sched",
    cls=Commands,
    help="Schedules declared in YAML become Temporal workflow starts, each window exactly once.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PIPE_CLOSED = 128 + 13
"""Exit code when the reader closes the pipe, as a shell reports for programs ended by SIGPIPE (13).

Python ignores SIGPIPE, and must: otherwise a lost server connection would silently end the process.
"""


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log to stderr.")] = False,
) -> None:
    if verbose:
        # It loads the Temporal SDK, whose import takes longer than many commands.
        from engine.telemetry.logs import configure_logging

        configure_logging()
    else:
        logging.basicConfig(level=logging.CRITICAL, format="sched: %(message)s")
        logging.getLogger("sched.waits").setLevel(logging.WARNING)  # for whose lock it waits
    if version:
        typer.echo(f"sched-engine {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command and end the process.

    ``os._exit`` on purpose: at interpreter exit the Temporal SDK often aborts a short-lived
    process. Everything has been drained and flushed before.
    """
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or _PIPE_CLOSED
    with contextlib.suppress(BrokenPipeError):
        sys.stderr.flush()
    os._exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code: 0 success, 1 a fault found, 2 unusable input.

    With ``--json`` an error is a document on standard output too, besides the sentence on standard
    error.
    """
    try:
        with _escaping(arguments):
            code, error = _run(arguments)
        if error is not None and "--json" in arguments:
            sys.stdout.write(json_text({"error": error}) + "\n")
    except BrokenPipeError:
        return _PIPE_CLOSED
    return code


_WITH_CODE: Final = frozenset({"up", "worker"})
"""Commands that run code of users, whose output is their own; they escape what they print."""


@contextlib.contextmanager
def _escaping(arguments: list[str]) -> Iterator[None]:
    """Print texts of people safely, whichever way a command prints them."""
    named = next((each for each in arguments if not each.startswith("-")), "")
    if named in _WITH_CODE:
        yield
        return
    out, err = SafeStream(sys.stdout), SafeStream(sys.stderr)
    with contextlib.redirect_stdout(cast("Any", out)), contextlib.redirect_stderr(cast("Any", err)):
        yield


def _run(arguments: list[str]) -> tuple[int, dict[str, object] | None]:
    try:
        app(arguments, prog_name="sched")
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # click and rich exit with 1
            raise end.__context__ from None
        refused = end.__context__
        error = _refusal(refused) if isinstance(refused, TyperException) else None
        return end.code if isinstance(end.code, int) else 0, error
    except EngineError as fault:
        for line in _lines(fault):
            typer.echo(escaped(line), err=True)
        return 2, fault.to_json()
    except KeyboardInterrupt:
        return 130, None
    except BrokenPipeError:
        raise
    except Exception as fault:  # noqa: BLE001 - an exit that skips os._exit could abort or hang
        traceback.print_exc()
        return 1, error_json(Code.ENGINE_ERROR, f"{type(fault).__name__}: {fault}")
    return 0, None


def _refusal(error: TyperException) -> dict[str, object]:
    """Return the error of a command line; its message ends with the hint, if there is one."""
    message, _, hint = error.format_message().rpartition("; ")
    return error_json(Code.COMMAND_INVALID, message or hint, hint=hint if message else None)


def _lines(error: EngineError) -> list[str]:
    if isinstance(error, ScheduleFileError | WorkflowInvalid):
        return [str(error)]  # each problem includes its location and code
    problems = error.problems if isinstance(error, SettingsInvalid) else [str(error)]
    return [f"sched: {error.code}: {problem}" for problem in problems]
