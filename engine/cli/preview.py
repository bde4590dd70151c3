"""``sched next``: when something will fire."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from engine.cli.environment import Target, find_target, open_service
from engine.cli.moments import is_date, moment
from engine.cli.options import (
    DEFAULT_DATA_DIR,
    DEFAULT_FILE,
    AnyKey,
    DataDir,
    Json,
    Schedules,
    whole_number,
)
from engine.cli.output import counted, paused_until, print_json, print_table
from engine.cli.upcoming import SPARE, Source, Upcoming, missing, one_of_each, table, upcoming
from engine.errors import ScheduleNotFound
from engine.ledger.schedule_records import ScheduleRow
from engine.schedules import Cron, Schedule
from engine.schedules.instants import TICK
from engine.service import ScheduleService, not_found

Expression = Annotated[
    str | None,
    typer.Option("--cron", metavar="EXPR", help="Of this cron expression; asks nobody."),
]
Zone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="TZ", help="The expression's IANA zone; UTC without."),
]
Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="ISO",
        help="After this moment instead of now; on the clock of --timezone where it has no offset."
        " A date alone begins with its midnight, in UTC without --timezone.",
    ),
]
Count = Annotated[
    int, typer.Option("--count", "-n", metavar="N", help="At most so many.", parser=whole_number)
]

_H = re.compile(r"(?<![A-Za-z])H(?![A-Za-z])")
_NAMED = 5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("next")(show_next)


def show_next(
    context: typer.Context,
    key: AnyKey = None,
    *,
    cron: Expression = None,
    timezone: Zone = None,
    start: Start = None,
    count: Count = 10,
    schedules: Schedules = DEFAULT_FILE,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Show what fires next: each schedule once, or so many fires of one.

    With --cron the fires of an expression, which need neither ledger nor file.

    The ledger is asked where there is one, and otherwise, or where --schedules is given, the
    schedule file.
    """
    now = datetime.now(UTC)
    after = now if start is None else _after(start, timezone)
    if cron is not None:
        if key is not None:
            raise typer.BadParameter("KEY and --cron: name one of the two")
        found = _of_expression(cron, timezone or "UTC")
    elif timezone is not None:
        raise typer.BadParameter("--timezone is the zone of --cron; a schedule has its own")
    else:
        named = context.get_parameter_source("schedules")
        ledger = None if named and named.name == "COMMANDLINE" else find_target(data_dir)
        found = asyncio.run(_of_ledger(ledger, key)) if ledger else _of_file(schedules, key)
    if key is None and cron is None:
        _print_each(found, after, now, count, as_json=as_json)
    else:
        _print_one(found, after, now, count, as_json=as_json)


@dataclass(frozen=True, slots=True)
class Found:
    """What may fire, where that was read, and in words what will not fire."""

    sources: tuple[Source, ...]
    origin: str
    silent: tuple[str, ...] = ()


def _after(text: str, timezone: str | None) -> datetime:
    """Return the instant after which ``--from`` begins: who names a day means all of it."""
    begin = moment(text, "--from", timezone=timezone)
    return begin - TICK if is_date(text) else begin


def _of_expression(cron: str, timezone: str) -> Found:
    source = Source("", Cron(cron, timezone=timezone), timezone)
    spread = "H is spread by a schedule's key; these are the times of an empty one"
    return Found((source,), "of the expression", (spread,) if _H.search(cron) else ())


async def _of_ledger(ledger: Target, key: str | None) -> Found:
    async with open_service(ledger) as opened:
        rows = await opened.schedules() if key is None else [await opened.schedule(key)]
    kept, silent = [], []
    for row in rows:
        if why := _silence(row):
            if key or why != "retired":  # what has long gone is a riddle to who did not ask
                silent.append((row.key, why))
        elif row.schedule:
            kept.append(Source.of(row.schedule, row.skips))
    return Found(tuple(kept), f"of the ledger {ledger.place}", in_words(silent))


def _silence(row: ScheduleRow) -> str | None:
    if row.pause and row.pause.until and row.state == "paused":
        return f"paused {paused_until(row.pause)}"
    if row.state != "active":
        return row.state
    return None if row.schedule else "unreadable for this version"


def _of_file(path: Path, key: str | None) -> Found:
    file = ScheduleService.check(path)
    by_key = {schedule.key: schedule for schedule in file.schedules}
    if key is not None:
        if key not in by_key:
            raise _not_in(path, key, list(by_key))
        by_key = {key: by_key[key]}
    held = {name: _held(schedule) for name, schedule in by_key.items()}
    return Found(
        tuple(Source.of(schedule) for name, schedule in by_key.items() if not held[name]),
        f"of the file {path}",
        in_words([(name, why) for name, why in held.items() if why]),
    )


def _not_in(path: Path, key: str, keys: Sequence[str]) -> ScheduleNotFound:
    return not_found(key, keys, see=f"{path} has {counted(len(keys), 'schedule')}")


def _held(schedule: Schedule) -> str | None:
    if not schedule.enabled:
        return "disabled"
    return "paused at first" if schedule.paused else None


def in_words(silent: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """One sentence per reason: a herd of paused schedules is one line."""
    by_reason: dict[str, list[str]] = {}
    for key, why in silent:
        by_reason.setdefault(why, []).append(key)
    return tuple(
        f"{why}, so that nothing fires: {', '.join(keys[:_NAMED])}"
        + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")
        for why, keys in by_reason.items()
    )


def _print_one(found: Found, after: datetime, now: datetime, count: int, *, as_json: bool) -> None:
    rows = [row for source in found.sources for row in upcoming(source, after, count)]
    said = [*missing(rows, after), *found.silent]
    if found.sources and len(rows) < count:
        said.append(_ended(len(rows), after))
    if not as_json:
        for source in found.sources:
            typer.echo(source.aloud(now))
    _print(found, rows, said, now, as_json=as_json, with_key=False)


def _print_each(found: Found, after: datetime, now: datetime, count: int, *, as_json: bool) -> None:
    rows = one_of_each(found.sources, after)
    fire = {row.source.key for row in rows}
    over = [(one.key, "over") for one in found.sources if one.key not in fire]
    said = [*found.silent, *in_words(over)]
    if not found.sources and not said:
        said.append("there is no schedule yet")
    if len(rows) > count:
        said.append(f"and {len(rows) - count} more later; -n {len(rows)} shows them all")
    _print(found, rows[:count], said, now, as_json=as_json, with_key=True)


def _print(
    found: Found,
    rows: Sequence[Upcoming],
    said: Sequence[str],
    now: datetime,
    *,
    as_json: bool,
    with_key: bool,
) -> None:
    if as_json:
        print_json([row.as_json() for row in rows])
        if rows:
            return  # a last fire's note says so; an empty list alone would say nothing
    else:
        if rows:
            columns, cells = table(rows, now, with_key=with_key)
            print_table(columns, cells, spare=SPARE)
        said = [*said, f"({found.origin})"]
    for sentence in said:
        typer.echo(sentence, err=as_json)


def _ended(shown: int, after: datetime) -> str:
    if shown:
        return f"after {'that one' if shown == 1 else 'those'} nothing fires any more"
    begin = after + TICK
    if not begin.microsecond:  # a day was named, and all of it counts
        return f"nothing fires from {begin:%Y-%m-%d %H:%M:%S} UTC on"
    return f"nothing fires after {after:%Y-%m-%d %H:%M:%S} UTC"
