"""The commands around the schedule file and the ledger: ``check``, ``apply``, ``migrate``."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from engine.cli.environment import find_target, open_service, service
from engine.cli.options import (
    DEFAULT_DATA_DIR,
    DEFAULT_FILE,
    CodeToo,
    DataDir,
    File,
    Json,
    SameFile,
    TakeFrom,
    one_file,
)
from engine.cli.output import counted, print_json
from engine.cli.preview import in_words
from engine.cli.unsaid_zones import unsaid_zones, unsaid_zones_in_words
from engine.cli.unserved import WaitForWorker, nobody_serves, wait_for_worker
from engine.errors import LedgerError, Problem, ScheduleFileError
from engine.runtime.declare import PRUNE_AFTER
from engine.runtime.placing import located, placed
from engine.runtime.reports import ApplyReport
from engine.runtime.source import Source
from engine.schedules import ScheduleFile
from engine.service import ScheduleService

_WAITS_FOR_SESSIONS = 60.0
"""Seconds that ``migrate`` waits for a dump and the like before it leaves an index for later."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(check)
    app.command("apply")(apply_file)
    app.command()(migrate)


def check(
    context: typer.Context,
    path: File = DEFAULT_FILE,
    schedules: SameFile = None,
    imports: CodeToo = None,
    as_json: Json = False,
) -> None:
    """Name everything that is wrong with a schedule file. Needs no server.

    With --import also the workflows that the code does not have, and inputs that do not fit them.
    Ends with 2 when the file cannot be used, and with 1 when only an expect: does not come true.
    """
    path = one_file(context, path, schedules)
    code = 2
    try:
        file = ScheduleService.check(path)
        code = 1  # from here on the file can be used
        if any(schedule.expect for schedule in file.schedules):
            file = ScheduleService.check(path, expectations=True)
        code = 2
        if imports:
            _check_code(file, path, imports)
    except ScheduleFileError as error:
        if as_json:
            problems = [asdict(found) for found in error.problems]
            print_json({"file": str(path), "problems": problems})
        else:
            typer.echo(str(error), err=True)
        raise typer.Exit(code) from None
    _tell_good(file, path, as_json=as_json)


def _tell_good(file: ScheduleFile, path: Path, *, as_json: bool) -> None:
    over, unsaid = _over(file, datetime.now(UTC)), unsaid_zones(file)
    if as_json:
        keys = [schedule.key for schedule in file.schedules]
        warnings = [asdict(found) for found in file.warnings]
        head = {"file": str(path), "project": file.project, "keys": keys, "over": over}
        print_json({**head, "no_timezone": unsaid, "problems": [], "warnings": warnings})
        return
    _warn(file)
    found = counted(len(file.schedules), "schedule")
    typer.echo(f"{path}: good, {found} of project {file.project}")
    for sentence in in_words([(key, "over") for key in over]):
        typer.echo(sentence)
    if note := unsaid_zones_in_words(unsaid):
        typer.echo(note)


def _check_code(file: ScheduleFile, path: Path, imports: list[str]) -> None:
    """Compare a file with the code that is to run it.

    Raises:
        ScheduleFileError: with every schedule that does not fit.
        EngineError: the code cannot be imported.
    """
    # Users' code, and Temporal's SDK, take longer to load than all that `check` does without.
    from engine.flow.definition import definition_of  # noqa: PLC0415
    from engine.runtime.discovery import import_user_code  # noqa: PLC0415
    from engine.runtime.misfits import misfits  # noqa: PLC0415

    code = import_user_code(imports)
    definitions = {each.type: each for cls in code.workflows if (each := definition_of(cls))}
    if found := misfits(file.schedules, definitions, types=code.types):
        raise ScheduleFileError(file.name, tuple(placed(found, Source(path))))


def apply_file(
    context: typer.Context,
    path: File = DEFAULT_FILE,
    schedules: SameFile = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Also retire keys the file no longer has.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Apply a lower revision; prune more than half of a project."),
    ] = False,
    *,
    take_from: TakeFrom = None,
    imports: CodeToo = None,
    wait: WaitForWorker = False,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Apply a schedule file: make it the newest word on its project.

    All of it in one transaction. What another project owns is refused. A schedule whose workflow
    no worker has is refused alone: then the others are applied, and the command ends with 1. With
    --import inputs that do not fit the code are named; another version of it may take them. It
    warns where no worker lives that starts what comes due.
    """
    path = one_file(context, path, schedules)
    more = as_json or prune or force or take_from or imports or wait
    if not more and asyncio.run(_is_unchanged(path, data_dir)):
        return
    file = ScheduleService.check(path)
    if not as_json:
        _warn(file)

    async def write() -> tuple[ApplyReport, tuple[str, ...], str]:
        async with service(data_dir) as opened:
            report = await opened.apply(file, force=force, prune=prune, take_from=take_from)
            retired = await _prune(opened, file, path, force=force) if prune else ()
            return report, retired, await nobody_serves(opened, file.project)

    async def wait_for_workers() -> None:
        async with service(data_dir) as opened:
            await wait_for_worker(partial(nobody_serves, opened, file.project, unknown=True))

    # Before: code that fails to import changes nothing.
    wrong = wrong_inputs_of(file, path, imports)
    report, retired, alone = asyncio.run(write())
    if as_json:
        lists = {"warnings": map(asdict, file.warnings), "problems": map(asdict, wrong)}
        told = {name: [*problems] for name, problems in lists.items()}
        print_json({**asdict(report), "retired": retired, **told})
    else:
        _tell_applied(report, path, retired, prune=prune)
        for problem in wrong:
            typer.echo(problem.located(file.name))
    if alone:
        typer.echo(alone, err=True)
    if wait:
        asyncio.run(wait_for_workers())
    if report.refused:
        raise typer.Exit(1)


def _tell_applied(
    report: ApplyReport, path: Path, retired: tuple[str, ...], *, prune: bool
) -> None:
    typer.echo(str(report))
    for line in report.queues:
        typer.echo(line)
    for remark in located(report, Source(path)):
        typer.echo(remark)
    if report.absent and not prune:
        typer.echo(f"not in the file: {', '.join(report.absent)} (--prune retires them)")
    if retired:
        typer.echo(f"retired: {', '.join(retired)}")


def wrong_inputs_of(file: ScheduleFile, path: Path, imports: list[str] | None) -> list[Problem]:
    """Return where inputs do not fit the code of these packages.

    Raises:
        EngineError: the code cannot be imported.
    """
    if not imports:
        return []
    # As above.
    from engine.runtime.applying import wrong_inputs  # noqa: PLC0415
    from engine.runtime.discovery import import_user_code  # noqa: PLC0415

    return wrong_inputs(file, Source(path), import_user_code(imports).types)


def _over(file: ScheduleFile, now: datetime) -> list[str]:
    """Return the keys of what has had its last window; only ``at`` and ``end`` end one."""
    ending = [each for each in file.schedules if each.at is not None or each.end is not None]
    return [each.key for each in ending if each.enabled and each.spec.next(now) is None]


async def _is_unchanged(path: Path, data_dir: Path) -> bool:
    """Say what there is to say of a file that is applied already; it is hashed, and not read.

    A file that cannot be used, and a ledger that is away, are for whoever reads and writes them.
    """
    with suppress(ScheduleFileError, LedgerError):
        if of := find_target(data_dir):
            async with open_service(of) as opened:
                if report := await opened.unchanged(path):
                    alone = await nobody_serves(opened, report.project)
                    typer.echo(str(report))
                    if alone:
                        typer.echo(alone, err=True)
                    return True
    return False


def _warn(file: ScheduleFile) -> None:
    for warning in file.warnings:
        typer.echo(f"warning: {warning.located(file.name)}", err=True)


async def _prune(
    opened: ScheduleService, file: ScheduleFile, path: Path, *, force: bool
) -> tuple[str, ...]:
    """Retire what the file has lacked for long enough, and does still lack then."""
    heads = await opened.schedules(file.project)
    named = {schedule.key for schedule in file.schedules}
    if any(head.state != "retired" and head.key not in named for head in heads):
        seconds = PRUNE_AFTER.total_seconds()
        typer.echo(
            f"waiting {seconds:.0f} s, so that no half-saved file retires a schedule", err=True
        )
        await asyncio.sleep(seconds)
    if ScheduleService.check(path).digest != file.digest:
        typer.echo(f"{path} has changed meanwhile: nothing retired", err=True)
        return ()
    return (await opened.prune(file, force=force)).retired


def migrate(data_dir: DataDir = DEFAULT_DATA_DIR, as_json: Json = False) -> None:
    """Bring the ledger's schema up to date.

    Every other command does so too when it connects, but leaves large indexes to this one and to
    the workers.
    """

    async def connect() -> tuple[tuple[int, ...], list[str]]:
        async with service(data_dir) as opened:
            return opened.migrated, await opened.build_indexes(patience=_WAITS_FOR_SESSIONS)

    applied, left = asyncio.run(connect())
    if as_json:
        print_json({"applied": applied, "indexes_left": left})
        return
    names = ", ".join(f"{version:04}" for version in applied)
    typer.echo(f"applied {names}" if applied else "the ledger is up to date")
    if left:
        text = f"left for later: the indexes {', '.join(left)}"
        typer.echo(f"{text}; workers that may build them, and `sched migrate`", err=True)
