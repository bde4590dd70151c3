"""``sched plan``: what applying a schedule file would change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from engine.cli.environment import service
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
from engine.cli.output import console, counted, instant, print_json
from engine.cli.times import clock
from engine.cli.unsaid_zones import unsaid_zones, unsaid_zones_in_words
from engine.cli.writing import wrong_inputs_of
from engine.errors import Problem
from engine.ledger.declaration_records import DriftRow
from engine.runtime.placing import placed, unknown_workflows
from engine.runtime.rehearsing import Change, Rehearsal
from engine.runtime.source import Source
from engine.schedules import ScheduleFile
from engine.schedules.outlook import Starts
from engine.service import ScheduleService

CHANGES = 3
"""The exit code when something would change."""

_SIGNS = {"added": "+", "changed": "~", "returned": "+", "retired": "-"}
_COLOURS = {"+": "green", "~": "yellow", "-": "red", "!": "magenta"}
_LINES = 12
"""Keys that are only listed; a project may have thousands."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan")(plan)


def plan(
    context: typer.Context,
    path: File = DEFAULT_FILE,
    schedules: SameFile = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Also what `apply --prune` would retire.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="As `apply --force` would.")] = False,
    *,
    take_from: TakeFrom = None,
    imports: CodeToo = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show what applying a schedule file would change, and which fires move.

    Nothing is changed: the apply itself is run and taken back. Ends with 0 when nothing would
    change, with 3 when something would, with 2 when the file cannot be applied, and with 1 when
    all that is new would be refused.
    """
    path = one_file(context, path, schedules)
    file = ScheduleService.check(path)

    async def ask() -> Rehearsal:
        async with service(data_dir) as opened:
            return await opened.plan(file, prune=prune, force=force, take_from=take_from)

    found = asyncio.run(ask())
    problems = placed(unknown_workflows(found.unknown), Source(path))
    problems += wrong_inputs_of(file, path, imports)
    if as_json:
        told = [asdict(problem) for problem in problems]
        print_json({**as_document(found, file), "problems": told})
    else:
        _show(found, file, problems)
    if found.refused is not None:
        if not as_json:
            typer.echo(f"sched: {found.refused.code}: {found.refused}", err=True)
        raise typer.Exit(2)
    if found.changes or found.queues:
        raise typer.Exit(CHANGES)
    raise typer.Exit(1 if found.refused_keys else 0)


def _show(found: Rehearsal, file: ScheduleFile, problems: Sequence[Problem]) -> None:
    out = console()
    for line in lines(found, file):
        out.print(Text(line, style=_COLOURS.get(line[:1], "")))
    for line in _some([problem.located(file.name) for problem in problems]):
        out.print(Text(line, style="red"), soft_wrap=True)
    if note := unsaid_zones_in_words(unsaid_zones(file)):
        typer.echo(note, err=True)


def lines(found: Rehearsal, file: ScheduleFile) -> Iterator[str]:
    """Yield what people read."""
    zones = {schedule.key: schedule.timezone for schedule in file.schedules}
    yield f"project {found.project}, {_applied(found)}"
    for change in found.changes:
        yield from _change(change, zones.get(change.key, "UTC"))
    yield from _some([f"~ {line}" for line in found.queues])
    foreign = [f"! {key}: belongs to {owner}" for key, owner in found.foreign.items()]
    yield from _some(foreign)
    if found.absent and not any(change.kind == "retired" for change in found.changes):
        absent = [f"  {key}: not in the file, goes on firing (--prune)" for key in found.absent]
        yield from _some(absent)
    yield from _some([f"! {line}" for line in drift(found)])
    if found.refused is None:
        yield _sum(found)


def _applied(found: Rehearsal) -> str:
    if found.last is None:
        return "never applied before"
    last = found.last
    revision = f" revision {last.revision}" if last.revision is not None else ""
    same = "this very file" if found.same else f"{last.file_name}{revision}"
    return f"applied last from {same} at {instant(last.applied_at)} by {last.applied_by}"


def _change(change: Change, zone: str) -> Iterator[str]:
    edits = f": {', '.join(change.edits)}" if change.edits else ""
    yield f"{_SIGNS[change.kind]} {change.key} {change.kind}{edits}"
    for sign, starts in (("-", change.moved.vanish), ("+", change.moved.appear)):
        yield from _starts(sign, starts, zone)
    if change.fires:
        moments = ", ".join(clock(at, zone) for at in change.fires[:_LINES])
        yield f"    fires on apply: {len(change.fires)} ({moments})"


def _starts(sign: str, starts: Starts, zone: str) -> Iterator[str]:
    for at in starts.first:
        yield f"    {sign} {clock(at, zone)}" + (f"  {instant(at)}" if zone != "UTC" else "")
    if more := starts.count - len(starts.first):
        yield f"    {sign} and {more} more"


def _some(all_of_them: Sequence[str]) -> list[str]:
    more = len(all_of_them) - _LINES
    return [*all_of_them[:_LINES], *([f"  and {more} more"] if more > 0 else [])]


def drift(found: Rehearsal) -> list[str]:
    """Return what stands otherwise than the file alone would have it, a sentence each."""
    told = [sentence for row in found.drift for sentence in _drift(row)]
    return [*told, *(f"{key}: the file says paused, and it was resumed" for key in found.resumed)]


def _drift(row: DriftRow) -> Iterator[str]:
    if row.origin == "api":
        yield f"{row.key}: an application asked for it, no file has it"
    if row.pause is not None:
        by = f" by {row.pause.by}" if row.pause.by else ""
        until = f" until {instant(row.pause.until)}" if row.pause.until else ""
        why = f": {row.pause.reason}" if row.pause.reason else ""
        yield f"{row.key}: paused since {instant(row.pause.at)}{until}{by}{why}"
    if row.skipped:
        first = instant(row.skipped[0])
        yield f"{row.key}: {counted(len(row.skipped), 'coming window')} skipped, first {first}"


def _sum(found: Rehearsal) -> str:
    kinds = ("added", "changed", "returned", "retired")
    counts = {kind: sum(each.kind == kind for each in found.changes) for kind in kinds}
    named = [f"{count} {kind}" for kind, count in counts.items() if count]
    named.append(f"{len(found.unchanged)} unchanged")
    if found.refused_keys:
        named.append(f"{len(found.refused_keys)} refused")
    return f"{', '.join(named)}; fires on apply: {found.fires}"


def as_document(found: Rehearsal, file: ScheduleFile) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    last = found.last
    return {
        "file": file.name,
        "project": found.project,
        "from": instant(found.now),
        "to": instant(found.until),
        "last": last and {**asdict(last), "applied_at": instant(last.applied_at)},
        "same_file": found.same,
        "refused": found.refused and {"code": found.refused.code, "message": str(found.refused)},
        "refused_keys": found.refused_keys,
        "changes": [_change_json(change) for change in found.changes],
        "unchanged": len(found.unchanged),
        "absent": found.absent,
        "foreign": found.foreign,
        "fires_on_apply": found.fires,
        "drift": [
            {
                "key": row.key,
                "origin": row.origin,
                "paused_since": instant(row.pause.at) if row.pause else None,
                "paused_until": instant(row.pause.until) if row.pause else None,
                "paused_by": row.pause.by if row.pause else None,
                "reason": row.pause.reason if row.pause else None,
                "skipped": _instants(row.skipped),
            }
            for row in found.drift
        ],
        "resumed": found.resumed,
        "queues": found.queues,
    }


def _change_json(change: Change) -> dict[str, Any]:
    moved = {"appear": change.moved.appear, "vanish": change.moved.vanish}
    return {
        "key": change.key,
        "change": change.kind,
        "edits": change.edits,
        **{
            name: {"count": starts.count, "fire_times": _instants(starts.first)}
            for name, starts in moved.items()
        },
        "fires_on_apply": _instants(change.fires),
    }


def _instants(moments: Sequence[datetime]) -> list[str | None]:
    return [instant(moment) for moment in moments]
