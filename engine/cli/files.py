"""Commands check, apply, plan, migrate and schema."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from engine.cli.next import describe_silent
from engine.cli.output import (
    WaitForWorker,
    answers,
    clock,
    console,
    counted,
    instant_text,
    json_schema,
    print_json,
    project_without_worker,
    wait_for_worker,
)
from engine.cli.target import (
    DEFAULT_FILE,
    CodeToo,
    File,
    Json,
    Reading,
    SameFile,
    Session,
    Strict,
    TakeFrom,
    WithApplications,
    command,
    find_target,
    one_file,
    open_service,
)
from engine.errors import EngineError, LedgerError, Problem, ScheduleFileError, TemporalUnavailable
from engine.runtime.apply.source import Source, doubtful, locate, located_remarks, unknown_workflows
from engine.schedules import Declaration, Schedule, ScheduleFile, first_of, format_duration
from engine.schedules.diff import Starts
from engine.schedules.loader.json_schema import json_schema_text
from engine.service import (
    PRUNE_AFTER,
    ApplyReport,
    Change,
    DriftRow,
    DryRun,
    Renamed,
    ScheduleService,
)

commands = typer.Typer(rich_markup_mode=None)


# --- schema ---
# ``sched schema``: the schema by which editors check and complete a schedule file.


@commands.command("schema")
def print_schema(
    output: Annotated[
        bool, typer.Option("--output", help="That of what commands print with --json instead.")
    ] = False,
) -> None:
    """Print the JSON Schema of the schedule file, for editors.

    Save it beside the file (sched schema > schedules.schema.json) and begin the file with:
    # yaml-language-server: $schema=schedules.schema.json
    """
    if not output:
        sys.stdout.write(json_schema_text())
        return

    print_json(json_schema())


# --- missing time zones ---
# A note about schedules that fire in UTC only because no time zone is declared.

_NAMED = 5
_OF_THE_CLOCK = 4
"""The cron fields hour, day, month and weekday; if all are ``*``, every hour is alike."""


def missing_timezones(file: ScheduleFile) -> list[str]:
    """Return the cron keys with a ``timezone`` neither of their own nor from ``defaults``."""
    return [
        schedule.key
        for schedule in file.schedules
        if schedule.cron is not None
        and "timezone" not in schedule.model_fields_set
        and _knows_hours(schedule)
    ]


def _knows_hours(schedule: Schedule) -> bool:
    cron = schedule.cron or ""
    return cron.lower() != "@hourly" and cron.split()[-_OF_THE_CLOCK:] != ["*"] * _OF_THE_CLOCK


def describe_missing_timezones(keys: Sequence[str]) -> str:
    """Return a note about these keys; empty if there are none."""
    if not keys:
        return ""
    return (
        f"note: no timezone is named, so that UTC is meant: {first_of(keys, _NAMED)};"
        " write timezone: beside cron, or in defaults:"
    )


# --- check, apply and migrate ---
# ``sched check``, ``sched apply`` and ``sched migrate``.

_WAITS_FOR_SESSIONS = 60.0
"""Seconds that ``migrate`` waits for other sessions, such as a dump, before deferring an index."""


@commands.command()
def check(
    context: typer.Context,
    path: File = DEFAULT_FILE,
    schedules: SameFile = None,
    imports: CodeToo = None,
    no_import: Annotated[
        bool, typer.Option("--no-import", help="Check the file alone, and import no code.")
    ] = False,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Report every problem of a schedule file. Needs no server.

    If `workflows` is beside the file in this folder, or with --import, it also reports workflows
    that the code does not have and inputs that do not fit them; with --import also workflows that
    Temporal's sandbox cannot load. The exit code is 2 if the file cannot be used, and 1 if only an
    expect: fails. Cron expressions that probably do not mean what was meant are warnings.
    """
    path = one_file(context, path, schedules)
    code = 2
    declared = declared_here(imports)
    try:
        file = ScheduleService.check(path, declared=declared)
        code = 1  # from here on the file can be used
        if any(schedule.expect for schedule in file.schedules):
            file = ScheduleService.check(path, expectations=True, declared=declared)
        code = 2
        if imports:
            _check_code(file, path, imports)
        elif not no_import and (beside := _code_beside(path)):
            _check_names(file, path, beside)
        file = _with_doubts(file, path, strict=strict)
    except ScheduleFileError as error:
        if as_json:
            nothing = dict.fromkeys(("keys", "over", "no_timezone", "warnings"), ())
            found = answers.CHECKED(
                file=path, project=None, declared={}, problems=error.problems, **nothing
            )
            print_json(found)
        else:
            typer.echo(str(error), err=True)
        raise typer.Exit(code) from None
    _print_good(file, path, as_json=as_json)


def _with_doubts(
    file: ScheduleFile, path: Path, *, strict: bool = False, mistakes: bool = True
) -> ScheduleFile:
    """Return a file with the warnings about its cron expressions.

    Raises:
        ScheduleFileError: there is a warning, and that is an error.
    """
    doubts = doubtful(file, _source(file, path), datetime.now(UTC), mistakes=mistakes)
    warnings = (*file.warnings, *doubts)
    if strict and warnings:
        raise ScheduleFileError(file.name, warnings)
    return replace(file, warnings=warnings)


def declared_here(imports: list[str] | None) -> tuple[Declaration, ...]:
    """Return the schedules that stand beside the workflows of these packages.

    Without packages: of those that a worker imports here, if their text declares any. Otherwise
    no code is imported.

    Raises:
        EngineError: the code cannot be imported.
    """
    # Imported late as in `_check_code`.
    from engine.runtime.code.discovery import import_user_code, packages_with_schedules

    packages = packages_with_schedules(imports or ())
    if not packages:
        return ()
    from engine.runtime.apply.code_check import declarations_of

    return declarations_of(import_user_code(packages).workflows)


def _source(file: ScheduleFile, path: Path) -> Source:
    """Return the source of a file and of what code declares beside it."""
    return Source(path, file.declared)


def _print_good(file: ScheduleFile, path: Path, *, as_json: bool) -> None:
    over, missing = _over(file, datetime.now(UTC)), missing_timezones(file)
    if as_json:
        keys = [schedule.key for schedule in file.schedules]
        more = {"file": path, "keys": keys, "over": over, "no_timezone": missing, "problems": ()}
        print_json(answers.CHECKED(file, declared=file.places, **more))
        return
    _warn(file)
    found = counted(len(file.schedules), "schedule")
    typer.echo(f"{path}: good, {found} of project {file.project}")
    for line in _first_lines([f"  {key}: at {at}" for key, at in file.places.items()]):
        typer.echo(line)
    for sentence in describe_silent([(key, "over") for key in over]):
        typer.echo(sentence)
    if note := describe_missing_timezones(missing):
        typer.echo(note)


def _code_beside(path: Path) -> list[str]:
    """Return the package of workflows that a worker of this folder would import, if there is one.

    A file elsewhere may belong to other code, and so do workers that SCHED_IMPORTS is for.
    """
    if os.environ.get("SCHED_IMPORTS"):
        return []
    folder = path if path.is_dir() else path.absolute().parent
    there = Path("workflows/__init__.py").exists() or Path("workflows.py").exists()
    return ["workflows"] if there and folder.resolve() == Path.cwd() else []


def _check_names(file: ScheduleFile, path: Path, imports: list[str]) -> None:
    """Compare a file with the code beside it: the schedules of this folder's own task queue.

    Raises:
        ScheduleFileError: a schedule does not fit.
        EngineError: the code cannot be imported.
    """
    from engine.runtime.apply.code_check import known_to_fit
    from engine.runtime.code.discovery import import_user_code

    try:
        code = import_user_code(imports)
    except EngineError as error:
        raise EngineError(error.message, hint="mend it, or check with --no-import") from error
    queue = os.environ.get("SCHED_TASK_QUEUE") or "sched"
    mine = [each for each in file.schedules if each.task_queue == queue]
    if found := locate(known_to_fit(mine, code.workflows, types=code.types), Source(path)):
        raise ScheduleFileError(file.name, tuple(found))


def _check_code(file: ScheduleFile, path: Path, imports: list[str]) -> None:
    """Compare a file with the code that will run it.

    Raises:
        ScheduleFileError: a schedule does not fit, or a workflow cannot be loaded; the error lists
            all of them.
        EngineError: the code cannot be imported.
        ResourceMissing: a step needs what no resource yields.
    """
    # Users' code and the Temporal SDK take longer to import than all the rest of `check` takes.
    from engine.runtime.apply.code_check import known_to_fit
    from engine.runtime.code.discovery import import_user_code
    from engine.runtime.code.workflow_check import unsound
    from engine.runtime.steps.resources import WorkerResources

    code = import_user_code(imports)
    WorkerResources().serve(code.activities)
    found = [
        *locate(
            known_to_fit(file.schedules, code.workflows, types=code.types), _source(file, path)
        ),
        *asyncio.run(unsound(code.workflows, code.activities)),
    ]
    if found:
        raise ScheduleFileError(file.name, tuple(found))


@command(commands, "apply")
def apply_file(
    session: Session,
    context: typer.Context,
    path: File = DEFAULT_FILE,
    schedules: SameFile = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Also retire keys that the file no longer has.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Apply a lower revision; prune more than half of a project."),
    ] = False,
    *,
    take_from: TakeFrom = None,
    with_applications: WithApplications = False,
    imports: CodeToo = None,
    wait: WaitForWorker = False,
) -> None:
    """Apply a schedule file to the ledger.

    All changes happen in one transaction. Keys of another project are refused. A schedule whose
    workflow no worker has is refused alone: the others are applied, and the exit code is 1. With
    --import it also reports inputs that do not fit this code, although another version may accept
    them. It warns if no live worker would start what comes due.
    """
    path = one_file(context, path, schedules)
    renamed = _renamed(take_from, with_applications=with_applications)
    declared = declared_here(imports)
    more = session.as_json or prune or force or take_from or imports or wait or declared
    if not more and asyncio.run(_is_unchanged(path, session.data_dir)):
        return
    file = ScheduleService.check(path, declared=declared)
    file = _with_doubts(file, path, mistakes=False)
    if not session.as_json:
        _warn(file)

    async def write(opened: ScheduleService) -> tuple[ApplyReport, tuple[str, ...], str]:
        report = await opened.apply(file, force=force, prune=prune, take_from=renamed)
        retired = await _prune(opened, file, path, force=force) if prune else ()
        return report, retired, await project_without_worker(opened, file.project)

    async def wait_for_workers(opened: ScheduleService) -> None:
        await wait_for_worker(partial(project_without_worker, opened, file.project, unknown=True))

    # Before the apply, so that code that fails to import changes nothing.
    wrong = wrong_inputs_of(file, path, imports) + unfit_attributes_of(session, file, path)
    report, retired, alone = session.ask(write)
    session.print(
        answers.APPLY_REPORT(report, file, retired=retired, problems=wrong),
        chain(
            _describe_applied(report, _source(file, path), retired, prune=prune),
            (problem.located(file.name) for problem in wrong),
        ),
    )
    if wait:
        session.ask(wait_for_workers)
    elif alone:
        typer.echo(alone, err=True)
    if report.refused:
        raise typer.Exit(1)


def _renamed(old: str | None, *, with_applications: bool) -> Renamed | None:
    if with_applications and old is None:
        raise typer.BadParameter("--with-applications goes with --take-from PROJECT")
    return None if old is None else Renamed(old, with_applications)


def _left_behind(keys: Sequence[str]) -> Iterator[str]:
    """Yield a sentence about schedules of applications that no worker of the new name serves."""
    if keys:
        yield from _first_lines([f"! {key}: of an application, stays behind" for key in keys])
        yield "  --with-applications takes them along"


def _describe_applied(
    report: ApplyReport, source: Source, retired: tuple[str, ...], *, prune: bool
) -> Iterator[str]:
    yield str(report)
    yield from report.queues
    yield from report.hooks
    yield from located_remarks(report, source)
    if report.absent and not prune:
        yield f"not in the file: {', '.join(report.absent)} (--prune retires them)"
    if retired:
        yield f"retired: {', '.join(retired)}"
    yield from _left_behind(report.left_behind)


def wrong_inputs_of(file: ScheduleFile, path: Path, imports: list[str] | None) -> list[Problem]:
    """Return the inputs that do not fit the code of these packages.

    Raises:
        EngineError: the code cannot be imported.
    """
    if not imports:
        return []
    # Imported late as in `_check_code`.
    from engine.runtime.apply.attempts import wrong_inputs
    from engine.runtime.code.discovery import import_user_code

    return wrong_inputs(file, _source(file, path), import_user_code(imports).types)


def unfit_attributes_of(session: Session, file: ScheduleFile, path: Path) -> list[Problem]:
    """Return the search attributes of a file that the namespace does not take.

    Only a file that has some connects to Temporal. Without a server it is said that they were not
    checked.
    """
    if not any(each.search_attributes for each in file.schedules):
        return []
    # Imported late as in `_check_code`.
    from engine.cli.temporal import search_attributes_of
    from engine.runtime.apply.code_check import unfit_attributes

    try:
        kinds = asyncio.run(search_attributes_of(session.target))
    except TemporalUnavailable as error:
        typer.echo(f"note: searchAttributes were not checked: {error}", err=True)
        return []
    return locate(unfit_attributes(file.schedules, kinds), _source(file, path))


def _over(file: ScheduleFile, now: datetime) -> list[str]:
    """Return the keys whose last window has passed; only ``at`` and ``end`` end a schedule."""
    ending = [each for each in file.schedules if each.at is not None or each.end is not None]
    return [each.key for each in ending if each.enabled and each.spec.next(now) is None]


async def _is_unchanged(path: Path, data_dir: Path) -> bool:
    """Return whether the file is applied already, and if so, report it; the file is only hashed.

    An unusable file or an unavailable ledger counts as changed: the apply itself reports it.
    """
    with suppress(ScheduleFileError, LedgerError):
        if of := find_target(data_dir):
            async with open_service(of) as opened:
                if report := await opened.unchanged(path):
                    alone = await project_without_worker(opened, report.project)
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
    """Retire keys that the file has lacked for long enough, unless the file changes meanwhile."""
    heads = await opened.schedules(file.project)
    named = {key for schedule in file.schedules for key in (schedule.key, schedule.was)}
    if any(head.state != "retired" and head.key not in named for head in heads):
        seconds = PRUNE_AFTER.total_seconds()
        typer.echo(
            f"waiting {seconds:.0f} s, so that no half-saved file retires a schedule", err=True
        )
        await asyncio.sleep(seconds)
    if ScheduleService.check(path, declared=file.declared).digest != file.digest:
        typer.echo(f"{path} has changed meanwhile: nothing retired", err=True)
        return ()
    report = await opened.prune(file, force=force)
    for remark in report.remarks:
        typer.echo(remark, err=True)
    return report.retired


@command(commands)
def migrate(session: Session) -> None:
    """Bring the ledger's schema up to date.

    Every other command does this too when it connects, except for large indexes, which it leaves to
    this command and to workers.
    """

    async def connect(opened: ScheduleService) -> tuple[tuple[int, ...], list[str]]:
        return opened.migrated, await opened.build_indexes(patience=_WAITS_FOR_SESSIONS)

    applied, left = session.ask(connect)
    names = ", ".join(f"{version:04}" for version in applied)
    session.print(
        answers.MIGRATED(applied=applied, indexes_left=left),
        f"applied {names}" if applied else "the ledger is up to date",
    )
    if left and not session.as_json:
        text = f"left for later: the indexes {', '.join(left)}"
        typer.echo(f"{text}; workers that may build them, and `sched migrate`", err=True)


# --- plan ---
# ``sched plan``: what applying a schedule file would change.

CHANGES = 3
"""Exit code if something would change."""

_SIGNS = {"added": "+", "renamed": "~", "changed": "~", "returned": "+", "retired": "-"}
_COLOURS = {"+": "green", "~": "yellow", "-": "red", "!": "magenta"}
_LINES = 12
"""Most lines or fires shown of one kind; a project may have thousands."""


@command(commands, of=Reading)
def plan(
    session: Session,
    context: typer.Context,
    path: File = DEFAULT_FILE,
    schedules: SameFile = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Include what `apply --prune` would retire.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="As `apply --force` would do it.")] = False,
    *,
    take_from: TakeFrom = None,
    with_applications: WithApplications = False,
    imports: CodeToo = None,
    strict: Strict = False,
) -> None:
    """Show what applying a schedule file would change, and which fires move.

    Nothing changes: the apply runs in a transaction that is rolled back. The exit code is 0 if
    nothing would change, 3 if something would, 2 if the file cannot be applied, and 1 if everything
    new in it would be refused.
    """
    path = one_file(context, path, schedules)
    renamed = _renamed(take_from, with_applications=with_applications)
    file = ScheduleService.check(path, declared=declared_here(imports))
    file = _with_doubts(file, path, strict=strict)

    found = session.ask(
        lambda opened: opened.plan(file, prune=prune, force=force, take_from=renamed)
    )
    problems = locate(unknown_workflows(found.unknown), _source(file, path))
    problems += wrong_inputs_of(file, path, imports) + unfit_attributes_of(session, file, path)
    if session.as_json:
        more = {"file": file.name, "declared": file.places, "problems": problems}
        print_json(answers.LOCATED_PLAN(found, file, **more))
    else:
        _warn(file)
        _show(found, file, problems)
    if found.refused is not None:
        if not session.as_json:
            typer.echo(f"sched: {found.refused.code}: {found.refused}", err=True)
        raise typer.Exit(2)
    if found.changes or found.queues or found.hooks:
        raise typer.Exit(CHANGES)
    raise typer.Exit(1 if found.refused_keys else 0)


def _show(found: DryRun, file: ScheduleFile, problems: Sequence[Problem]) -> None:
    out = console()
    for line in lines(found, file):
        out.print(Text(line, style=_COLOURS.get(line[:1], "")))
    for line in _first_lines([problem.located(file.name) for problem in problems]):
        out.print(Text(line, style="red"), soft_wrap=True)
    if note := describe_missing_timezones(missing_timezones(file)):
        typer.echo(note, err=True)
    if found.retention is not None and found.forgetful:
        typer.echo(_describe_forgetful(found.forgetful, found.retention), err=True)


def _describe_forgetful(keys: Sequence[str], retention: timedelta) -> str:
    return (
        f"note: catchUp.window is longer than Temporal keeps closed runs"
        f" ({format_duration(retention)}): {first_of(keys, _NAMED)}; after an outage of that length"
        " older windows are unvouched, and no run is started for them"
    )


def lines(found: DryRun, file: ScheduleFile) -> Iterator[str]:
    """Yield the lines of the text output."""
    zones = {schedule.key: schedule.timezone for schedule in file.schedules}
    yield f"project {found.project}, {_applied(found)}"
    for change in found.changes:
        place = file.places.get(change.key, "")
        yield from _change(change, zones.get(change.key, "UTC"), place)
    yield from _first_lines([f"~ {line}" for line in (*found.queues, *found.hooks)])
    foreign = [f"! {key}: belongs to {owner}" for key, owner in found.foreign.items()]
    yield from _first_lines(foreign)
    misnamed = [f"! {key}: {why}" for key, why in found.misnamed.items()]
    yield from _first_lines(misnamed)
    yield from _first_lines([f"  {key}: {why}" for key, why in found.in_vain.items()])
    if found.absent and not any(change.kind == "retired" for change in found.changes):
        absent = [f"  {key}: not in the file, continues to fire (--prune)" for key in found.absent]
        yield from _first_lines(absent)
    yield from _first_lines([f"! {line}" for line in drift(found)])
    yield from _left_behind(found.left_behind)
    if found.refused is None:
        yield _summary(found)


def _applied(found: DryRun) -> str:
    if found.last is None:
        return "never applied before"
    last = found.last
    revision = f" revision {last.revision}" if last.revision is not None else ""
    same = "this very file" if found.same else f"{last.file_name}{revision}"
    return f"applied last from {same} at {instant_text(last.applied_at)} by {last.applied_by}"


def _change(change: Change, zone: str, place: str) -> Iterator[str]:
    edits = f": {', '.join(change.edits)}" if change.edits else ""
    at = f" (at {place})" if place else ""
    was = f", was {change.was}" if change.was else ""
    yield f"{_SIGNS[change.kind]} {change.key} {change.kind}{was}{edits}{at}"
    if change.likely_was:
        yield (
            f"    {change.likely_was}, which is not in the file, is the same: if this is its new"
            f" key, write was: {change.likely_was}"
        )
    for sign, starts in (("-", change.moved.vanish), ("+", change.moved.appear)):
        yield from _starts(sign, starts, zone)
    if change.fires:
        moments = ", ".join(clock(at, zone) for at in change.fires[:_LINES])
        yield f"    fires on apply: {len(change.fires)} ({moments})"


def _starts(sign: str, starts: Starts, zone: str) -> Iterator[str]:
    for at in starts.first:
        yield f"    {sign} {clock(at, zone)}" + (f"  {instant_text(at)}" if zone != "UTC" else "")
    if more := starts.count - len(starts.first):
        yield f"    {sign} and {more} more"


def _first_lines(all_of_them: Sequence[str]) -> list[str]:
    more = len(all_of_them) - _LINES
    return [*all_of_them[:_LINES], *([f"  and {more} more"] if more > 0 else [])]


def drift(found: DryRun) -> list[str]:
    """Return a sentence for each difference between the ledger and the file alone."""
    texts = [sentence for row in found.drift for sentence in _drift(row)]
    return [*texts, *(f"{key}: the file says paused, and it was resumed" for key in found.resumed)]


def _drift(row: DriftRow) -> Iterator[str]:
    if row.origin == "api":
        yield f"{row.key}: an application asked for it, no file has it"
    if row.pause is not None:
        by = f" by {row.pause.by}" if row.pause.by else ""
        until = f" until {instant_text(row.pause.until)}" if row.pause.until else ""
        why = f": {row.pause.reason}" if row.pause.reason else ""
        yield f"{row.key}: paused since {instant_text(row.pause.at)}{until}{by}{why}"
    if row.skipped:
        first = instant_text(row.skipped[0])
        yield f"{row.key}: {counted(len(row.skipped), 'coming window')} skipped, first {first}"


def _summary(found: DryRun) -> str:
    counts = {kind: sum(each.kind == kind for each in found.changes) for kind in _SIGNS}
    named = [f"{count} {kind}" for kind, count in counts.items() if count]
    named.append(f"{len(found.unchanged)} unchanged")
    if found.refused_keys:
        named.append(f"{len(found.refused_keys)} refused")
    return f"{', '.join(named)}; fires on apply: {found.fires}"
