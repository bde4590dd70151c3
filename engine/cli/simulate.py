"""Command ``sched simulate``: effects of a file between two moments, outages included."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.cli.output import answers, counted, print_json
from engine.cli.simulate_report import page, print_simulation
from engine.cli.target import DEFAULT_FILE, File, Json, moment, parsed
from engine.schedules import ScheduleFile, parse_duration
from engine.schedules.simulation import Outage, Simulation, simulate as simulate_schedules
from engine.service import ScheduleService, not_found

From = Annotated[
    str,
    typer.Option(
        "--from", metavar="TIME", help="The first moment; a date means its midnight in UTC."
    ),
]
To = Annotated[str, typer.Option("--to", metavar="TIME", help="The moment to stop before.")]
Outages = Annotated[
    list[str] | None,
    typer.Option(
        "--outage", metavar="TIME/TIME", help="An outage between two moments; may be repeated."
    ),
]
Durations = Annotated[
    list[str] | None,
    typer.Option("--duration", metavar="KEY=20m", help="How long its runs take; may be repeated."),
]
New = Annotated[
    bool, typer.Option("--new", help="Assume that the ledger first sees the file at --from.")
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="OUT", help="Write a page with charts.")
]


commands = typer.Typer(rich_markup_mode=None)


@commands.command()
def simulate(
    path: File = DEFAULT_FILE,
    *,
    start: From,
    end: To,
    outage: Outages = None,
    duration: Durations = None,
    new: New = False,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Simulate a schedule file between two moments. Needs no server.

    The report shows what becomes of each window, and how many runs start in each minute.
    """
    file = ScheduleService.check(path)
    begin, stop = moment(start, "--from", bare="ahead"), moment(end, "--to", bare="ahead")
    gaps = [_outage(text) for text in outage or ()]
    lengths = dict(_duration(text, file) for text in duration or ())
    try:
        found = simulate_schedules(
            file.schedules, begin, stop, outages=gaps, durations=lengths, new=new
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--from, --to, --outage") from None
    if html is not None:
        _write(html, page(found, path.name))
    if as_json:
        print_json(_as_json(found))
        return
    print_simulation(found)
    if html is not None:
        typer.echo(f"\n{html}: the same as a page")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(
            f"{path} cannot be written: {error.strerror}", param_hint="--html"
        ) from None


def _outage(text: str) -> Outage:
    begin, slash, end = text.partition("/")
    if not slash:
        raise typer.BadParameter(
            f"{text!r} is not two moments; write 2026-11-22T02:00Z/2026-11-22T05:30Z",
            param_hint="--outage",
        )
    return Outage(moment(begin, "--outage"), moment(end, "--outage"))


def _duration(text: str, file: ScheduleFile) -> tuple[str, timedelta]:
    key, equals, length_ = text.partition("=")
    keys = [schedule.key for schedule in file.schedules]
    if not equals:
        raise typer.BadParameter(
            f"{text!r} is no key with a duration; write nightly-report=20m", param_hint="--duration"
        )
    if key not in keys:
        raise not_found(key, keys, see=f"{file.name} has {counted(len(keys), 'schedule')}")
    return key, parsed(length_, parse_duration, "--duration")


def _as_json(found: Simulation) -> dict[str, Any]:
    open_runs = found.most_open or (None,) * len(found.starts)
    minutes = (
        answers.MINUTE(minute=found.minute(n), starts=starts, most_open=most)
        for n, (starts, most) in enumerate(zip(found.starts, open_runs, strict=True))
        if starts or most
    )
    return answers.LOAD(found, minutes=[*minutes])
