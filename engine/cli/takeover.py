"""Commands compare, takeover and move."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client

from engine.audit.comparison import Comparison, LoggedStarts, SourceKind, TheirSource
from engine.audit.native import NativeSchedules, NativeStarts
from engine.cli.output import binding_text, counted, instant_text, print_json, print_table
from engine.cli.target import (
    AnyKey,
    Key,
    OfProject,
    Reading,
    Reason,
    Session,
    SetupFunction,
    command,
    moment,
    one_of,
    parsed,
)
from engine.cli.temporal import connected, described
from engine.runtime import Setup
from engine.schedules import first_of, parse_duration
from engine.service import MoveReport, ScheduleService, TakenOver

commands = typer.Typer(rich_markup_mode=None)

_SHOWN = 20
"""Most differences of one schedule in the text; ``--json`` has all."""
_NAMED = 5
"""Most schedules that a note names."""

NativeId = Annotated[
    str | None,
    typer.Option(
        "--temporal-schedule",
        metavar="ID",
        help="The native Temporal Schedule.  [default: metadata.temporalSchedule, else KEY]",
    ),
]


# --- compare ---
# ``sched compare``: windows against the runs that another scheduler has started.

_KINDS: dict[str, SourceKind] = {
    "schedule": "temporal_schedule",
    "type": "workflow_type",
    "id": "id_prefix",
    "log": "log",
}
_read_kind = one_of("kind", tuple(_KINDS))


def _parsed_source(text: str) -> TheirSource:
    """Parse what to compare with: a kind and a name."""
    kind, _, name = text.partition(":")
    if not name:
        listed = ", ".join(f"{each}:…" for each in _KINDS)
        raise typer.BadParameter(f"{text!r}; write one of {listed}")
    return TheirSource(_KINDS[_read_kind(kind)], name)


@command(commands, of=Reading)
def compare(
    session: Session,
    key: AnyKey = None,
    since: Annotated[
        str,
        typer.Option("--since", metavar="AGE|ISO", help="The first fire time: an age or a moment."),
    ] = "24h",
    project: OfProject = None,
    against: Annotated[
        TheirSource | None,
        typer.Option(
            "--against",
            metavar="KIND:NAME",
            help="The other runs: schedule:ID, type:TYPE, id:PREFIX or log:FILE.  [default: the"
            " schedule of metadata.temporalSchedule, else of KEY]",
            parser=_parsed_source,
        ),
    ] = None,
    tolerance: Annotated[
        str,
        typer.Option(
            "--tolerance", metavar="TIME", help="How far a run may be from its window, as 5s."
        ),
    ] = "5s",
    setup: SetupFunction = None,
) -> None:
    """Compare windows with the runs that another scheduler has started.

    They are in Temporal, or lines of a log that begin with a moment and its offset, as those of
    journalctl -o short-iso. log:- is standard input.

    Without KEY every schedule in shadow mode is compared. Each window is to have one run, by one of
    the two: the exit code is 1 if one has none or two, if a run has no window, or if there is
    nothing to compare. `sched docs takeover` has the way from here to a take-over.
    """
    if against is not None and key is None:
        raise typer.BadParameter("give the KEY that is to be compared with these runs")
    logged = _logged(against.name) if against and against.kind == "log" else None
    begin = _since(since)
    near = parsed(tolerance, parse_duration, "--tolerance")

    async def read(opened: ScheduleService) -> list[Comparison]:
        starts = logged or NativeStarts(await _client(session, setup))
        return await opened.compare(
            begin, starts, key=key, project=project, source=against, tolerance=near
        )

    found = session.ask(read)
    if session.as_json:
        print_json(found)
    else:
        _print(found)
    raise typer.Exit(0 if found and all(each.is_equal for each in found) else 1)


def _logged(name: str) -> LoggedStarts:
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise typer.BadParameter(f"{name} cannot be read: {why}") from None
    return LoggedStarts(text.splitlines())


def _since(text: str) -> datetime | timedelta:
    try:
        return parse_duration(text)
    except ValueError:
        return moment(text, "--since")


async def _client(session: Session, setup: str | None) -> Client:
    return await connected(session.target, Setup.load(setup))


def _print(found: Sequence[Comparison]) -> None:
    if not found:
        typer.echo("no schedule is in shadow mode: name a KEY to compare it all the same")
        return
    print_table(
        ("KEY", "EQUAL", "RAN HERE", "ONLY OURS", "ONLY THEIRS", "DOUBLED", "AGAINST"),
        (
            (
                each.key,
                each.equal,
                each.ours,
                each.only_ours,
                each.only_theirs,
                each.doubled,
                str(each.source),
            )
            for each in found
        ),
    )
    for each in found:
        for line in _remarks(each):
            typer.echo(line)
    for note in dict.fromkeys(note for each in found for note in each.notes):
        keys = [each.key for each in found if note in each.notes]
        typer.echo(f"note: {first_of(keys, _NAMED)}: {note}")


def _remarks(found: Comparison) -> Iterator[str]:
    for each in found.differences[:_SHOWN]:
        run = f" ({each.workflow_id})" if each.kind == "only_theirs" else ""
        kind, at = each.kind.replace("_", " "), instant_text(each.at)
        yield f"{found.key}  {kind}  {at}{run}: {each.what}"
    if len(found.differences) > _SHOWN:
        yield f"{found.key}  and more: --json names {len(found.differences):,}"
    if found.held:
        text = f"{counted(found.held, 'window')} had no run because one of theirs was still open"
        yield f"note: {found.key}: {text}"


# --- takeover ---
# ``sched takeover``: the end of a native schedule at the moment where shadow mode ends.


@command(commands)
def takeover(
    session: Session,
    key: Key,
    temporal_schedule: NativeId = None,
    reason: Reason = None,
    setup: SetupFunction = None,
) -> None:
    """Let a native Temporal Schedule end where the shadow mode of a schedule does.

    The schedule needs `mode: shadow` and a `shadowUntil` that is to come. The windows before it
    stay the native schedule's, those from then on start here: none is lost and none runs twice,
    whenever either of the two acts. Repeating the command changes nothing.
    """

    async def act(opened: ScheduleService) -> TakenOver:
        native = NativeSchedules(await _client(session, setup))
        return await opened.take_over(key, native, name=temporal_schedule, reason=reason)

    done = session.ask(act)
    at = instant_text(done.at)
    text = (
        f"{key}: schedule {done.native} starts the windows before {at}, sched-engine"
        f" those from then on; after that moment `sched compare {key}` shows both"
    )
    notes = (f"note: {key}: {note}" for note in done.notes)
    session.print(done, "\n".join([text, *notes]))


# --- move ---
# ``sched move``: the ledger belongs to another Temporal namespace from now on.

OldIsGone = Annotated[
    bool,
    typer.Option(
        "--old-is-gone",
        help="Also end what is open where it belonged before, because that is no more.",
    ),
]
Close = Annotated[
    bool, typer.Option("--close", help="Move nothing, and end what is still open elsewhere.")
]


@command(commands)
def move(
    session: Session,
    *,
    old_is_gone: OldIsGone = False,
    close: Close = False,
    setup: SetupFunction = None,
) -> None:
    """Let the ledger belong to the Temporal namespace that TEMPORAL_* name.

    From then on its workers claim windows, and those of the one before only look after what they
    have begun. Repeat it to see how much that is. --old-is-gone and --close end it: a start without
    an answer becomes `unvouched`, an open run is lost. `sched docs takeover` has the steps.
    """
    if close and old_is_gone:
        raise typer.BadParameter("give --close or --old-is-gone, not both")

    async def act(opened: ScheduleService) -> MoveReport:
        if close:
            return await opened.close_moved()
        to = await described(session.target, Setup.load(setup))
        return await opened.move(to, old_is_gone=old_is_gone)

    done = session.ask(act)
    lines = [*map(binding_text, done.bindings)]
    if close or old_is_gone:
        starts, runs = counted(done.unvouched, "start"), counted(done.lost, "open run")
        lines.append(f"{starts} without an answer became unvouched, {runs} lost")
    session.print(done, lines)
