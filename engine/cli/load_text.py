"""What ``sched simulate`` prints for people: a table, and maps of bars."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.text import Text

from engine.cli.load_map import LoadMap, busiest, length, load_map, utc
from engine.cli.output import console, counted, print_table
from engine.schedules.simulated import Fate, Outcome, Simulation

_BARS = "▁▂▃▄▅▆▇█"
_COLOURS = ("green", "green", "green", "yellow", "yellow", "yellow", "red", "red")
_SHOWN = 20
_NAMED = 5
_UNUSUAL: tuple[Outcome, ...] = (
    "late", "caught_up", "queued", "overlapped", "coalesced", "expired",
)  # fmt: skip


def print_simulation(found: Simulation) -> None:
    """Print what becomes of the windows, and a map for each load."""
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
    first = any(fate.first_sight for fate in found.fates)
    columns = ["KEY", "WINDOWS", *(name.upper().replace("_", " ") for name in found.totals)]
    columns += ["FIRST SIGHT"] if first else []

    def row(fate: Fate) -> list[str]:
        counts = [fate.windows, *(fate.counts.get(name, 0) for name in found.totals)]
        counts += [fate.first_sight] if first else []
        return [fate.key, *(f"{count:,}" for count in counts)]

    # What did not go as usual comes first, then what fires most.
    fates = sorted(found.fates, key=lambda fate: (-_unusual(fate), -fate.windows, fate.key))
    total = [found.total] if len(fates) > 1 else []
    print_table(columns, map(row, [*fates[:_SHOWN], *total]))
    if len(fates) > _SHOWN:
        typer.echo(f"({len(fates) - _SHOWN:,} more schedules are in `all`; --json lists them)")
    for remark in (overlap_remark(found), dependency_remark(found)):
        if remark:
            typer.echo(remark)


def overlap_remark(found: Simulation) -> str:
    """Say of which schedules it is not known what gets in the way of what; empty if of none."""
    unknown = [fate.key for fate in found.fates if fate.overlap_unknown]
    if not unknown:
        return ""
    more = f" and {len(unknown) - _NAMED:,} more" if len(unknown) > _NAMED else ""
    cure = (
        "overlap is not simulated across an --outage"
        if found.outages
        else "say with --duration how long its runs take"
    )
    return (
        f"not known how runs get in each other's way: {', '.join(unknown[:_NAMED])}{more};"
        f" counted as with `overlap: allow`; {cure}"
    )


def dependency_remark(found: Simulation) -> str:
    """Say which schedules wait for others, whose runs are not simulated; empty if none does."""
    follows = [fate.key for fate in found.fates if fate.follows]
    if not follows:
        return ""
    more = f" and {len(follows) - _NAMED:,} more" if len(follows) > _NAMED else ""
    return (
        f"not simulated that they wait for other schedules: {', '.join(follows[:_NAMED])}{more};"
        " counted as if each started at its window"
    )


def _unusual(fate: Fate) -> int:
    return sum(fate.counts.get(name, 0) for name in _UNUSUAL)


def _print_map(found: Simulation, values: Sequence[int], noun: str) -> None:
    drawn, out = load_map(found, values), console()
    cell = "; a cell is the busiest minute of " + length(drawn.per_cell)
    cell = "" if drawn.per_cell == 1 else cell
    out.print()
    out.print(Text(f"{noun} per minute, UTC{cell}", style="bold"))
    _print_cells(drawn, max(values), out)
    out.print()
    for number, peak in enumerate(busiest(found, values)):
        begin = "busiest  " if number == 0 else "         "
        typer.echo(f"{begin}{peak.clock} UTC: {_named(peak.value, noun)}, {peak.when}")


def _print_cells(drawn: LoadMap, top: int, out: Console) -> None:
    margin = max(len(drawn.name(row)) for row in drawn.rows) + 2
    out.print(Text(" " * margin + _ruler(drawn), style="dim"))
    for row in drawn.rows:
        line = Text(drawn.name(row).ljust(margin))
        for value in row.cells:
            line.append(*_cell(value, top))
        line.rstrip()
        out.print(line)
    one = f"{_cell(1, top)[0]} 1  " if top > 1 else ""
    out.print(Text(f"{' ' * margin}· none  {one}{_BARS[-1]} {top:,}"))


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
