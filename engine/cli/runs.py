"""Commands about runs in Temporal: their histories and their versions."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from engine.cli import temporal
from engine.cli.output import answers, counted
from engine.cli.run_names import workflow_id
from engine.cli.target import (
    ANSWERS_WITHIN,
    Limit,
    Reading,
    Session,
    SetupFunction,
    Target,
    command,
    keys_in_the_file,
    one_of,
    open_service,
    rows_of,
)
from engine.flow import version_key
from engine.runtime import Setup
from engine.runtime.tracking.replay import Exported, export

commands = typer.Typer(rich_markup_mode=None)

# --- histories ---
# ``sched history export``: histories of runs, for ``assert_replayable``.

_DEFAULT_OUT: Final = Path("histories")


@command(commands, of=Reading)
def history(
    session: Session,
    action: Annotated[  # noqa: ARG001 - there is one as yet, and its parser refuses others
        str,
        typer.Argument(
            metavar="export",
            help="The action: `export`.",
            parser=one_of("action", ("export",)),
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="KEY|RUN-ID",
            help="A schedule, for its newest runs, or one run.",
            autocompletion=keys_in_the_file,
        ),
    ],
    limit: Limit = 20,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="The folder of the files.")
    ] = _DEFAULT_OUT,
    setup: SetupFunction = None,
) -> None:
    """Export histories of runs, to replay them against new code.

    One file for each run, in Temporal's JSON format, with inputs and results. The exit code is 1 if
    Temporal no longer has any of the runs.
    """
    options = Setup.load(setup)
    run = workflow_id(session, name, options)
    runs = [(run, None if run == name else name)]
    if ":" not in run and run == name:  # keys have no colon
        fires = session.ask(
            lambda opened: rows_of(opened, name, opened.fires(key=name, limit=limit))
        )
        runs = [(fire.workflow_id, fire.run_id) for fire in fires if fire.run_id]
    written = asyncio.run(_export(runs, out, session.target, options))
    kept = [each for each in written if each.file is not None]
    lines = [f"{each.workflow_id}: {each.file or 'Temporal has forgotten it'}" for each in written]
    lines.append(f"{counted(len(kept), 'run')} written to {out}" if kept else "nothing written")
    session.print([answers.EXPORTED(each) for each in written], lines)
    raise typer.Exit(0 if kept else 1)


async def _export(
    runs: Sequence[tuple[str, str | None]], out: Path, of: Target, setup: Setup
) -> list[Exported]:
    return await export(await temporal.connected(of, setup), runs, out)


# --- versions ---
# ``sched versions``: which versions of workflows are in use, and which classes can go.


@dataclass(frozen=True)
class WorkflowVersion:
    """One version of a workflow.

    Attributes:
        workflow, version: of its type ``workflow@version``.
        newest: whether workers announce no newer one.
        workers: the projects whose living workers have it.
        schedules: the keys of the schedules whose next run is of it.
        open_runs: how many of its runs are open, by whatever cause they started, children included;
            None if Temporal did not answer.
    """

    workflow: str
    version: str
    newest: bool
    workers: tuple[str, ...]
    schedules: tuple[str, ...]
    open_runs: int | None

    @property
    def removable(self) -> bool:
        """Whether no worker needs its class any more."""
        return self.open_runs == 0 and not (self.newest or self.schedules)


@command(commands, of=Reading)
def versions(
    session: Session,
    workflow: Annotated[
        str | None, typer.Argument(metavar="WORKFLOW", help="Only this workflow.")
    ] = None,
) -> None:
    """List versions of workflows with their open runs, and which can be removed.

    It knows the versions that live workers have and those that schedules name. Resetting a run or
    rerunning a dead letter needs its version again.
    """
    found = asyncio.run(_versions(workflow, session.target))
    nothing = f"no living worker or schedule has {workflow or 'a workflow with a version'}"
    lines = [_version_line(each) for each in found] or [nothing]
    session.print([answers.WORKFLOW_VERSION(each) for each in found], lines)


def _version_line(each: WorkflowVersion) -> str:
    parts = [
        f"{each.workflow}@{each.version}",
        "newest" if each.newest else "older",
        "open runs unknown" if each.open_runs is None else counted(each.open_runs, "open run"),
        counted(len(each.schedules), "schedule"),
    ]
    if not each.workers:
        parts.append("no worker has it")
    if each.removable:
        parts.append("no run of it is open: its class can be removed")
    elif not each.newest and each.open_runs == 0:
        parts.append(f"no run of it is open, but {', '.join(each.schedules[:3])} would start one")
    return "  ".join(parts)


async def _versions(workflow: str | None, of: Target) -> list[WorkflowVersion]:
    workers: defaultdict[str, set[str]] = defaultdict(set)
    schedules: defaultdict[str, list[str]] = defaultdict(list)
    async with open_service(of, patience=ANSWERS_WITHIN) as opened:
        for (project, _), types in (await opened.served()).items():
            for each in types:
                workers[each].add(project)
        for row in await opened.schedules():
            if row.state != "retired" and row.workflow_type:
                schedules[row.workflow_type].append(row.key)
    known = _by_version({*workers, *schedules})
    newest = dict(_by_version(workers))  # the last one of a name wins
    chosen = [each for each in known if workflow in {None, each[0], "@".join(each)}]
    counts = await temporal.count_open_runs(of, ["@".join(each) for each in chosen])
    return [
        WorkflowVersion(
            name,
            version,
            newest.get(name) == version,
            tuple(sorted(workers[f"{name}@{version}"])),
            tuple(schedules[f"{name}@{version}"]),
            counts.get(f"{name}@{version}"),
        )
        for name, version in chosen
    ]


def _by_version(types: Iterable[str]) -> list[tuple[str, str]]:
    """Return names and versions, the older ones of a name first; a type without one has none."""
    parts = [each.partition("@") for each in types]
    found = [(name, version) for name, at, version in parts if at]
    return sorted(found, key=lambda each: (each[0], version_key(each[1])))
