"""Command ``sched import``: schedules of other schedulers as a schedule file, differences named."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.output import print_json
from engine.cli.target import Json, command, find_target
from engine.errors import TimezoneInvalid
from engine.schedules import zone

if TYPE_CHECKING:
    from engine.imports.entries import Import, Options

commands = typer.Typer(rich_markup_mode=None)
_PURPOSE = "Write schedules of other schedulers as a schedule file. Needs no ledger."
group = typer.Typer(help=_PURPOSE, no_args_is_help=True)
commands.add_typer(group, name="import")

Files = Annotated[
    list[str] | None, typer.Argument(metavar="FILE", help="The files; - is standard input.")
]
Text = Annotated[str, typer.Argument(metavar="FILE", help="The file; - is standard input.")]
Object = Annotated[str, typer.Argument(metavar="SOURCE", help="module:object, or a JSON file.")]
Project = Annotated[
    str | None, typer.Option("--project", metavar="NAME", help="The project of the file.")
]
Workflow = Annotated[
    str | None,
    typer.Option("--workflow", metavar="NAME", help="The workflow of every schedule."),
]
Timezone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="ZONE", help="The time zone where the source names none."),
]
Shadow = Annotated[
    bool,
    typer.Option("--shadow", help="Write mode: shadow: windows are recorded and nothing starts."),
]


@dataclass(frozen=True, kw_only=True)
class Output:
    """Options of every import, as they were given."""

    project: Project = None
    workflow: Workflow = None
    shadow: Shadow = False
    as_json: Json = False

    def options(self, timezone: str | None = None) -> Options:
        """Return what the source is read with; the zone is UTC if there is none."""
        from engine.imports.entries import Options  # `--help` needs no schedules

        named = timezone or "UTC"
        zone(named)
        return Options(
            now=datetime.now(UTC), timezone=named, workflow=self.workflow, shadow=self.shadow
        )

    def write(self, found: Import) -> None:
        """Write the file to stdout and what differs to stderr; exit with 1 if it is not all."""
        from engine.imports.schedule_file import IMPORT, as_lines, as_yaml_file

        text = as_yaml_file(found, project=self.project)
        if self.as_json:
            print_json(IMPORT(found, yaml=text))
        else:
            sys.stdout.write(text)
            for line in as_lines(found):
                typer.echo(line, err=True)
        if not found.is_complete:
            raise typer.Exit(1)


@command(group, "crontab", of=Output)
def import_crontab(
    output: Output,
    file: Text = "-",
    user_column: Annotated[
        bool,
        typer.Option(
            "--user-column", help="A user stands before each command, as in /etc/crontab."
        ),
    ] = False,
    timezone: Timezone = None,
) -> None:
    """Write the entries of a crontab as a schedule file.

    Each line starts the workflow run_command with the command as its input. Without --timezone the
    clock is that of this machine. The exit code is 1 if something could not be expressed.
    """
    from engine.imports.crontab import read_crontab

    options = output.options(timezone or local_zone())
    output.write(read_crontab(file, options, user_column=user_column))


@command(group, "k8s-cronjob", of=Output)
def import_cronjobs(output: Output, file: Text = "-", timezone: Timezone = None) -> None:
    """Write CronJobs of Kubernetes as a schedule file.

    Each CronJob starts the workflow run_job with its jobTemplate in the input. The exit code is 1
    if something could not be expressed.
    """
    from engine.imports.kubernetes import read_cronjobs

    output.write(read_cronjobs(file, output.options(timezone)))


@command(group, "celery-beat", of=Output)
def import_beat(output: Output, source: Object, timezone: Timezone = None) -> None:
    """Write periodic tasks of Celery beat as a schedule file.

    SOURCE is module:app, module:beat_schedule, or JSON, as from dumpdata of Django. Each task
    starts the workflow run_task. The exit code is 1 if something could not be expressed.
    """
    from engine.imports.celery_beat import read_beat

    output.write(read_beat(source, output.options(timezone)))


@command(group, "apscheduler", of=Output)
def import_jobs(
    output: Output,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="module:scheduler, or a list of jobs.")
    ],
) -> None:
    """Write jobs of APScheduler 3 as a schedule file.

    Each job starts the workflow run_function with its function in the input. The exit code is 1 if
    something could not be expressed.
    """
    from engine.imports.apscheduler_jobs import read_jobs

    output.write(read_jobs(source, output.options()))


@command(group, "systemd-timer", of=Output)
def import_timers(output: Output, files: Files = None, timezone: Timezone = None) -> None:
    """Write timers of systemd as a schedule file.

    FILE is a unit file, or what systemctl cat prints. Each timer starts the workflow run_unit with
    its unit in the input. Without --timezone the clock is that of this machine. The exit code is 1
    if something could not be expressed.
    """
    from engine.imports.systemd_timers import read_timers

    output.write(read_timers(files or ["-"], output.options(timezone or local_zone())))


@command(group, "github-workflow", of=Output)
def import_workflows(output: Output, files: Files = None) -> None:
    """Write scheduled workflows of GitHub Actions as a schedule file.

    Each cron of on.schedule starts the workflow run_github_workflow with the file's name in the
    input. The exit code is 1 if something could not be expressed.
    """
    from engine.imports.github_workflows import read_workflows

    output.write(read_workflows(files or ["-"], output.options()))


@command(group, "quartz", of=Output)
def import_triggers(output: Output, file: Text = "-", timezone: Timezone = None) -> None:
    """Write triggers of Quartz as a schedule file.

    FILE is job-scheduling-data in XML. Each trigger starts the workflow run_quartz_job with its job
    in the input. Without --timezone the clock is that of this machine. The exit code is 1 if
    something could not be expressed.
    """
    from engine.imports.quartz_triggers import read_triggers

    output.write(read_triggers(file, output.options(timezone or local_zone())))


@command(group, "sidekiq", of=Output)
def import_ruby(output: Output, file: Text = "-", timezone: Timezone = None) -> None:
    """Write jobs of sidekiq-cron or sidekiq-scheduler as a schedule file.

    FILE is their YAML; that of resque-scheduler is read too. Each job starts the workflow
    run_ruby_job with its class in the input. The exit code is 1 if something could not be
    expressed.
    """
    from engine.imports.sidekiq_jobs import read_ruby

    output.write(read_ruby(file, output.options(timezone)))


@command(group, "cloud-schedules", of=Output)
def import_cloud(output: Output, file: Text = "-") -> None:
    """Write schedules of EventBridge Scheduler or Cloud Scheduler as a schedule file.

    FILE is JSON as from aws scheduler get-schedule, several one after the other, or from gcloud
    scheduler jobs list. Each starts the workflow run_target with its target in the input. The exit
    code is 1 if something could not be expressed.
    """
    from engine.imports.cloud_schedules import read_cloud

    output.write(read_cloud(file, output.options()))


@command(group, "temporal-schedules", of=Output)
def import_schedules(
    output: Output,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="Only ids that begin with it.")
    ] = "",
    address: Annotated[
        str | None,
        typer.Option(
            "--temporal-address", metavar="HOST:PORT", help="The server; else the environment's."
        ),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAME", help="The namespace; else the environment's."),
    ] = None,
) -> None:
    """Write the schedules of a Temporal namespace as a schedule file.

    Workflows are started by their types, as external ones. Nothing is changed on the server. The
    exit code is 1 if something could not be expressed.
    """
    named = {"target_host": address, "namespace": namespace}
    given = {name: value for name, value in named.items() if value}
    output.write(asyncio.run(_read_schedules(output.options(), prefix, given)))


async def _read_schedules(options: Options, prefix: str, given: dict[str, Any]) -> Import:
    from engine.cli.temporal import PATIENCE, reached  # it loads the SDK
    from engine.imports.temporal_schedules import read_schedules
    from engine.runtime.setup import Setup

    here = find_target()
    elsewhere = os.environ.get("TEMPORAL_ADDRESS") or os.environ.get("TEMPORAL_PROFILE")
    if here and here.temporal and not elsewhere:
        given = {"target_host": here.temporal, "namespace": here.namespace, **given}
    client = await reached(**Setup.load().client_options(), **given)
    return await read_schedules(client, options, prefix=prefix, patience=PATIENCE)


def local_zone(read: Callable[[Path], str] = os.path.realpath) -> str:
    """Return the IANA name of this machine's clock; UTC if it names none."""
    linked = str(read(Path("/etc/localtime"))).partition("/zoneinfo/")[2]
    for name in (os.environ.get("TZ", "").removeprefix(":"), linked):
        if name:
            try:
                return zone(name).name
            except TimezoneInvalid:
                continue
    return "UTC"
