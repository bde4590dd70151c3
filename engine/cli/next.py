"""Command ``sched next``: the next fires of a schedule, or the next one of each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from engine.cli.output import (
    answers,
    clock,
    counted,
    instant_text,
    local,
    print_json,
    print_table,
    relative,
    shadow_mode,
)
from engine.cli.target import (
    ANSWERS_WITHIN,
    DEFAULT_FILE,
    AnyKey,
    Reading,
    Schedules,
    Session,
    Target,
    command,
    find_target,
    is_date,
    moment,
    open_service,
    whole_number,
)
from engine.schedules import (
    HORIZON,
    TICK,
    Cron,
    Schedule,
    Spec,
    depends_on_key,
    first_of,
    from_seconds,
)
from engine.schedules.describe import describe, missing as missing_times, note as clock_note
from engine.service import ScheduleRow, ScheduleService, not_found

commands = typer.Typer(rich_markup_mode=None)


# --- next fires ---
# Computation of the next fires. Pure: ``after`` and ``now`` are arguments.

LAST = "last fire"
_NONE: Mapping[datetime, str] = MappingProxyType({})
_END = from_seconds(HORIZON)


@dataclass(frozen=True, slots=True)
class FireSource:
    """Spec with the time zone in which its fires are shown."""

    key: str
    spec: Spec
    timezone: str
    schedule: Schedule | None = None
    skips: Mapping[datetime, str] = field(default_factory=dict)
    until: datetime = _END

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        skips: Mapping[datetime, str] = _NONE,
        *,
        last: datetime | None = None,
    ) -> FireSource:
        """Return the source for a schedule.

        Args:
            schedule: what declares them.
            skips: its skipped windows.
            last: its last window, if a limit ends it.
        """
        return cls(schedule.key, schedule.spec, schedule.timezone, schedule, skips, last or _END)

    def starts(self, after: datetime) -> Iterator[datetime]:
        """Return the windows after ``after`` that start a run: not excluded, not skipped."""
        when = self.spec.fires if self.schedule is None else self.schedule.starts
        return (fire for fire in when(after, self.until) if fire not in self.skips)

    def skipped(self, after: datetime, until: datetime) -> str:
        """Return a note on windows in between that are skipped; empty if there are none."""
        between = (at for at in sorted(self.skips) if after < at < until)
        return "; ".join(f"{instant_text(at)} is skipped ({self.skips[at]})" for at in between)

    def describe(self, now: datetime) -> str:
        """Return a sentence that describes when it fires."""
        return describe(self.spec if self.schedule is None else self.schedule, now=now)


@dataclass(frozen=True, slots=True)
class Upcoming:
    """Window that will open; ``remark`` is a decision made ahead of it."""

    source: FireSource
    fire_time: datetime
    remark: str = ""

    @property
    def note(self) -> str:
        """Note on an unusual fire; empty for an ordinary one."""
        last = "" if next(self.source.starts(self.fire_time), None) else LAST
        clocks = clock_note(self.source.spec, self.fire_time)
        return "; ".join(filter(None, (self.remark, clocks, last)))

    def as_json(self) -> dict[str, Any]:
        """Return the fire as in ``sched next --json``."""
        shown = local(self.fire_time, self.source.timezone)
        precision = "milliseconds" if shown.microsecond else "seconds"
        return answers.UPCOMING(
            self,
            self.source,
            key=self.source.key or None,
            local_time=shown.isoformat(timespec=precision),
            bucket=self.source.spec.bucket(self.fire_time),
        )


def upcoming(source: FireSource, after: datetime, count: int) -> list[Upcoming]:
    """Return the first ``count`` fires strictly after ``after``."""
    times = [*islice(source.starts(after), count)]
    between = zip([after, *times], times, strict=False)
    return [Upcoming(source, time, source.skipped(before, time)) for before, time in between]


def missing(rows: Sequence[Upcoming], after: datetime) -> list[str]:
    """Return notes on skipped clock times from ``after`` to the last of one source's fires."""
    if not rows:
        return []
    return [gap.note for gap in missing_times(rows[0].source.spec, after, rows[-1].fire_time)]


def one_of_each(sources: Iterable[FireSource], after: datetime) -> list[Upcoming]:
    """Return the next fire of each source by time, then by key.

    Sources without another fire are omitted. A source that fires every second hides no other.
    """
    found = [fire for one in sources for fire in upcoming(one, after, 1)]
    return sorted(found, key=lambda each: (each.fire_time, each.source.key))


# --- command ---

Expression = Annotated[
    str | None, typer.Option("--cron", metavar="EXPR", help="The expression; needs no ledger.")
]
Zone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="TZ", help="The expression's IANA zone; UTC by default."),
]
Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="TIME",
        help="Start after this moment instead of now. Without an offset it is local to --timezone."
        " A date alone means its midnight, in UTC without --timezone.",
    ),
]
Count = Annotated[
    int, typer.Option("--count", "-n", metavar="N", help="Show at most N.", parser=whole_number)
]

_NAMED = 5


@command(commands, "next", of=Reading)
def show_next(
    session: Session,
    context: typer.Context,
    key: AnyKey = None,
    *,
    cron: Expression = None,
    timezone: Zone = None,
    start: Start = None,
    count: Count = 10,
    schedules: Schedules = DEFAULT_FILE,
) -> None:
    """Show the next fire of each schedule, or the next fires of one.

    With --cron it shows the fires of an expression, without a ledger or a file. Otherwise it reads
    the ledger, or the schedule file if there is no ledger or --schedules is given.
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
        ledger = None if named and named.name == "COMMANDLINE" else find_target(session.data_dir)
        found = asyncio.run(_of_ledger(ledger, key)) if ledger else _of_file(schedules, key, now)
    if key is None and cron is None:
        _print_each(session, found, after, now, count)
    else:
        _print_one(session, found, after, now, count)


@dataclass(frozen=True, slots=True)
class Found:
    """Sources found, where they were read, and sentences on schedules that will not fire."""

    sources: tuple[FireSource, ...]
    origin: str
    silent: tuple[str, ...] = ()


def _after(text: str, timezone: str | None) -> datetime:
    """Return the instant after which ``--from`` begins; a date includes its first instant."""
    begin = moment(text, "--from", timezone=timezone, bare="ahead")
    return begin - TICK if is_date(text) else begin


def _of_expression(cron: str, timezone: str) -> Found:
    source = FireSource("", Cron(cron, timezone=timezone), timezone)
    spread = "H is spread by a schedule's key; these are the times of an empty one"
    return Found((source,), "of the expression", (spread,) if depends_on_key(cron) else ())


async def _of_ledger(ledger: Target, key: str | None) -> Found:
    async with open_service(ledger, patience=ANSWERS_WITHIN) as opened:
        rows = await opened.schedules() if key is None else [await opened.schedule(key)]
    kept, silent = [], []
    for row in rows:
        if why := _silence(row):
            if key or why != "retired":  # retired schedules are of interest only by name
                silent.append((row.key, why))
        elif row.schedule:
            kept.append(FireSource.of(row.schedule, row.skips, last=row.last_start_at))
            if row.in_shadow:
                silent.append((row.key, shadow_mode(row.schedule)))
    return Found(tuple(kept), f"of the ledger {ledger.place}", describe_silent(silent))


def _silence(row: ScheduleRow) -> str | None:
    if row.pause and row.pause.until and row.state == "paused":
        return f"paused {row.pause.lasts}"
    if row.state != "active":
        return row.state
    return None if row.schedule else "unreadable for this version"


def _of_file(path: Path, key: str | None, now: datetime) -> Found:
    file = ScheduleService.check(path)
    by_key = {schedule.key: schedule for schedule in file.schedules}
    if key is not None:
        if key not in by_key:
            see = f"{path} has {counted(len(by_key), 'schedule')}"
            raise not_found(key, list(by_key), see=see)
        by_key = {key: by_key[key]}
    held = {name: _held(schedule) for name, schedule in by_key.items()}
    return Found(
        tuple(
            FireSource.of(schedule, last=schedule.last_start(now, schedule.limit))
            for name, schedule in by_key.items()
            if not held[name]
        ),
        f"of the file {path}",
        describe_silent([(name, why) for name, why in held.items() if why]),
    )


def _held(schedule: Schedule) -> str | None:
    if not schedule.enabled:
        return "disabled"
    return "paused at first" if schedule.paused else None


def describe_silent(silent: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return one sentence per reason, so that many paused schedules take one line."""
    by_reason: dict[str, list[str]] = {}
    for key, why in silent:
        by_reason.setdefault(why, []).append(key)
    return tuple(
        f"{why}, so that nothing fires: {first_of(keys, _NAMED)}" for why, keys in by_reason.items()
    )


def _print_one(session: Session, found: Found, after: datetime, now: datetime, count: int) -> None:
    rows = [row for source in found.sources for row in upcoming(source, after, count)]
    notes = [*missing(rows, after), *found.silent]
    if found.sources and len(rows) < count:
        notes.append(_ended(len(rows), after))
    if not session.as_json:
        for source in found.sources:
            typer.echo(source.describe(now))
    _print(session, found, rows, notes, now, with_key=False)


def _print_each(session: Session, found: Found, after: datetime, now: datetime, count: int) -> None:
    rows = one_of_each(found.sources, after)
    fire = {row.source.key for row in rows}
    over = [(one.key, "over") for one in found.sources if one.key not in fire]
    notes = [*found.silent, *describe_silent(over)]
    if not found.sources and not notes:
        notes.append("there is no schedule yet")
    if len(rows) > count:
        notes.append(f"and {len(rows) - count} more later; -n {len(rows)} shows them all")
    _print(session, found, rows[:count], notes, now, with_key=True)


def _print(
    session: Session,
    found: Found,
    rows: Sequence[Upcoming],
    notes: Sequence[str],
    now: datetime,
    *,
    with_key: bool,
) -> None:
    if session.as_json:
        print_json([row.as_json() for row in rows])
        if rows:
            return  # the note of the last fire has it; an empty list needs an explanation
    else:
        if rows:
            print_upcoming(rows, now, with_key=with_key)
        notes = [*notes, f"({found.origin})"]
    for sentence in notes:
        typer.echo(sentence, err=session.as_json)


def print_upcoming(
    rows: Sequence[Upcoming], now: datetime, heading: str = "FIRE TIME", *, with_key: bool = False
) -> None:
    """Print a table of these fires; ``heading`` is that of the fire times."""
    print_table(
        ("KEY", heading, "LOCAL TIME", "TIMEZONE", "FROM NOW", "NOTE"),
        (
            (
                row.source.key if with_key else "",
                instant_text(row.fire_time),
                clock(row.fire_time, row.source.timezone),
                row.source.timezone,
                relative(row.fire_time, now),
                row.note,
            )
            for row in rows
        ),
        optional=("KEY", "NOTE"),
        spare=("TIMEZONE", "LOCAL TIME", "FROM NOW"),
    )


def _ended(shown: int, after: datetime) -> str:
    if shown:
        return f"after {'that one' if shown == 1 else 'those'} nothing fires any more"
    begin = after + TICK
    if not begin.microsecond:  # --from was a date
        return f"nothing fires from {begin:%Y-%m-%d %H:%M:%S} UTC on"
    return f"nothing fires after {after:%Y-%m-%d %H:%M:%S} UTC"
