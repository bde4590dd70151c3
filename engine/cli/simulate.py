"""``sched simulate``: what a file would do between two moments, outages included."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from engine.cli.load_map import LoadMap, busiest, length, load_map, utc
from engine.cli.load_page import page
from engine.cli.options import DEFAULT_FILE, File, Json
from engine.cli.output import console, counted, instant, print_json, print_table
from engine.schedules import ScheduleFile
from engine.schedules.durations import parse_duration
from engine.schedules.simulated import OUTCOMES, Fate, Outage, Simulation
from engine.schedules.simulation import simulate as simulate_schedules
from engine.service import ScheduleService, not_found

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = ("green", "green", "green", "yellow", "yellow", "yellow", "red", "red")
_SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    path: File = DEFAULT_FILE,
    *,
    start: Annotated[str, typer.Option("--from", metavar="ISO", help="The first moment.")],
    end: Annotated[str, typer.Option("--to", metavar="ISO", help="The moment to stop before.")],
    outage: Annotated[
        list[str] | None,
        typer.Option(
            "--outage", metavar="ISO/ISO", help="Nothing runs between the two; may be repeated."
        ),
    ] = None,
    duration: Annotated[
        list[str] | None,
        typer.Option(
            "--duration", metavar="KEY=20m", help="How long its runs take; may be repeated."
        ),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="As if the ledger first saw the file at --from.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="OUT", help="Write a page with charts.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate a schedule file between two moments. Needs no server.

    It tells what becomes of each window, and how many runs start in which minute.
    """
    file = ScheduleService.check(path)
    gaps = [_outage(text) for text in outage or ()]
    lengths = dict(_duration(text, file) for text in duration or ())
    try:
        found = simulate_schedules(
            file.schedules, _moment(start, "--from"), _moment(end, "--to"),
            outages=gaps, durations=lengths, new=new,
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from, --to, --outage") from None
    if html is not None:
        try:
            html.write_text(page(found, path.name), encoding="utf-8")
        except OSError as error:
            raise typer.BadParameter(
                f"{html} cannot be written: {error.strerror}", param_hint="--html"
            ) from None
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)
        if html is not None:
            typer.echo(f"\n{html}: the same as a page")


def _moment(text: str, option: str) -> datetime:
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a date and time; write 2026-11-22T02:00:00Z", param_hint=option
        ) from None
    if read.tzinfo is None:
        raise typer.BadParameter(
            f"{text!r} has no offset; append Z for UTC, or an offset as -03:00", param_hint=option
        )
    return read


def _outage(text: str) -> Outage:
    begin, slash, end = text.partition("/")
    if not slash:
        raise typer.BadParameter(
            f"{text!r} is not two moments; write 2026-11-22T02:00Z/2026-11-22T05:30Z",
            param_hint="--outage",
        )
    return Outage(_moment(begin, "--outage"), _moment(end, "--outage"))


def _duration(text: str, file: ScheduleFile) -> tuple[str, timedelta]:
    key, equals, length_ = text.partition("=")
    keys = [schedule.key for schedule in file.schedules]
    if not equals:
        raise typer.BadParameter(
            f"{text!r} is no key with a duration; write nightly-report=20m", param_hint="--duration"
        )
    if key not in keys:
        raise not_found(key, keys, see=f"{file.name} has {counted(len(keys), 'schedule')}")
    try:
        return key, parse_duration(length_)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint="--duration") from None


def _as_json(found: Simulation) -> dict[str, object]:
    minutes = (
        {
            "minute": instant(found.minute(n)),
            "starts": starts,
            **({"most_open": found.most_open[n]} if found.most_open else {}),
        }
        for n, starts in enumerate(found.starts)
        if starts or (found.most_open and found.most_open[n])
    )
    return {
        "from": instant(found.start),
        "to": instant(found.end),
        "outages": [
            {"from": instant(each.begin), "to": instant(each.end)} for each in found.outages
        ],
        "windows": sum(fate.windows for fate in found.fates),
        "totals": found.totals,
        "schedules": [
            {
                "key": fate.key,
                "windows": fate.windows,
                **{name: fate.counts.get(name, 0) for name in OUTCOMES},
                "first_sight": fate.first_sight,
            }
            for fate in found.fates
        ],
        "minutes": list(minutes),
    }


def _print(found: Simulation) -> None:
    windows = sum(fate.windows for fate in found.fates)
    typer.echo(
        f"{utc(found.start)} to {utc(found.end)}: "
        f"{counted(len(found.fates), 'schedule')}, {windows:,} windows"
    )
    for gap in found.outages:
        typer.echo(f"outage {utc(gap.begin)} to {utc(gap.end)}")
    typer.echo()
    _print_fates(found)
    if any(found.starts):
        _print_map(found, found.starts, "starts")
    if any(found.most_open):
        _print_map(found, found.most_open, "open runs")


def _print_fates(found: Simulation) -> None:
    names = [*found.totals]
    first = any(fate.first_sight for fate in found.fates)
    columns = ["KEY", "WINDOWS", *(name.upper().replace("_", " ") for name in names)]
    columns += ["FIRST SIGHT"] if first else []
    # What did not go as usual comes first, then what fires most.
    fates = sorted(found.fates, key=lambda fate: (-_unusual(fate), -fate.windows, fate.key))
    total = Fate(
        "all", sum(fate.windows for fate in fates), found.totals,
        sum(fate.first_sight for fate in fates),
    )  # fmt: skip
    shown = [*fates[:_SHOWN], *([total] if len(fates) > 1 else [])]
    print_table(
        columns,
        [
            [
                fate.key, f"{fate.windows:,}",
                *(f"{fate.counts.get(name, 0):,}" for name in names),
                *([f"{fate.first_sight:,}"] if first else []),
            ]
            for fate in shown
        ],
    )  # fmt: skip
    if len(fates) > _SHOWN:
        typer.echo(f"({len(fates) - _SHOWN:,} more schedules are in `all`; --json lists them)")


def _unusual(fate: Fate) -> int:
    return sum(fate.counts.get(name, 0) for name in ("late", "caught_up", "coalesced", "expired"))


def _print_map(found: Simulation, values: Sequence[int], noun: str) -> None:
    drawn = load_map(found, values)
    out = console()
    typer.echo()
    cell = "; a cell is the busiest minute of " + length(drawn.per_cell)
    cell = "" if drawn.per_cell == 1 else cell
    out.print(Text(f"{noun} per minute, UTC{cell}", style="bold"))
    top = max(values)
    margin = max(len(drawn.name(row)) for row in drawn.rows) + 2
    out.print(Text(" " * margin + _ruler(drawn), style="dim"))
    for row in drawn.rows:
        line = Text(drawn.name(row).ljust(margin))
        for value in row.cells:
            line.append(*_cell(value, top))
        line.rstrip()
        out.print(line)
    one = f"{_cell(1, top)[0]} 1  " if top > 1 else ""
    typer.echo(f"{' ' * margin}· none  {one}{_BARS[-1]} {top:,}")
    typer.echo()
    for number, peak in enumerate(busiest(found, values)):
        begin = "busiest  " if number == 0 else "         "
        typer.echo(f"{begin}{peak.clock} UTC: {_named(peak.value, noun)}, {peak.when}")


def _named(value: int, noun: str) -> str:
    return f"{value:,} {noun.removesuffix('s') if value == 1 else noun}"


def _ruler(drawn: LoadMap) -> str:
    line = ""
    for column, name in drawn.ruler.items():
        line = line.ljust(column) + name
    return line


def _cell(value: int | None, top: int) -> tuple[str, str]:
    if value is None:
        return " ", ""
    if value == 0:
        return "·", "dim"
    level = (value * len(_BARS) - 1) // top
    return _BARS[level], _COLOURS[level]
