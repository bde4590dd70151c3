"""Command ``sched events``: list and follow events, and deliver dead ones again."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer
from rich.text import Text

from engine.cli.output import answers, console, instant_text, print_json
from engine.cli.target import AnyKey, Limit, Reading, Session, command, on_signal, open_service
from engine.events import ScheduleEvent
from engine.schedules import ALL_EVENTS
from engine.service import ScheduleService, Subscription

commands = typer.Typer(rich_markup_mode=None)

_NO_READER = "no event; they are written while there is a hook, a listener or a follower"


@command(commands, of=Reading)
def events(
    session: Session,
    key: AnyKey = None,
    name: Annotated[
        str,
        typer.Option("--name", metavar="PATTERN", help="Pattern of names: schedule.*.arrived."),
    ] = ALL_EVENTS,
    limit: Limit = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep running: show each new event.")
    ] = False,
    subscribers: Annotated[
        bool, typer.Option("--subscribers", help="Show who gets events, and which.")
    ] = False,
    dead: Annotated[
        bool, typer.Option("--dead", help="Show deliveries that were given up.")
    ] = False,
    redeliver: Annotated[
        str | None,
        typer.Option("--redeliver", metavar="ID", help="Deliver an event again that was given up."),
    ] = None,
) -> None:
    """Show events of fires and schedules, newest first.

    With --follow the oldest comes first, and Ctrl-C ends it; with --json each line is a document.
    """
    if follow:
        _follow(session, key, name)
    elif redeliver is not None:
        _redeliver(session, redeliver)
    elif subscribers:
        _show_subscribers(session)
    elif dead:
        _show_dead(session, limit)
    else:
        _show_newest(session, key, name, limit)


def _show_newest(session: Session, key: str | None, name: str, limit: int) -> None:
    found = session.ask(lambda opened: opened.events(key=key, name=name, limit=limit))
    session.print_rows(
        found,
        ("AT", "SEQ", "NAME", "KEY", "RUN", "WHY"),
        map(_row, found),
        spare=("SEQ", "RUN"),
        none=_NO_READER,
    )


def _row(event: ScheduleEvent) -> tuple[object, ...]:
    data = event.data
    why = data["error"] or data["reason"]
    return instant_text(event.time), event.sequence, event.name, event.key, data["workflowId"], why


def _follow(session: Session, key: str | None, name: str) -> None:
    out = console()

    def show(event: ScheduleEvent) -> None:
        if session.as_json:
            print_json(event, indent=None)
            return
        at, _, shown, its, run, why = (str(each or "") for each in _row(event))
        out.print(Text("  ".join(filter(None, (at, its, shown, run, why)))))

    async def run() -> None:
        async with open_service(session.target, patience=session.patience) as opened:
            async for event in opened.follow_events(
                key=key, name=name, on_begin=lambda: typer.echo("following events", err=True)
            ):
                show(event)

    async def until_interrupted() -> None:
        following = asyncio.create_task(run())
        on_signal(signal.SIGINT, following.cancel)
        try:
            await following
        except asyncio.CancelledError:
            raise typer.Exit(128 + signal.SIGINT) from None

    asyncio.run(until_interrupted())


def _show_subscribers(session: Session) -> None:
    found = session.ask(lambda opened: opened.subscriptions())
    session.print_rows(
        found,
        ("NAME", "KIND", "EVENTS", "KEYS", "POSITION", "STATE"),
        [
            (
                each.name,
                each.kind,
                ", ".join(each.events),
                ", ".join(each.keys),
                each.position,
                _state(each),
            )
            for each in found
        ],
        spare=("POSITION",),
        none="no hook, no listener and no follower: no events are written",
    )


def _state(each: Subscription) -> str:
    if each.failing_since is None:
        return "accepts"
    return f"fails since {instant_text(each.failing_since)}: {each.failing_error}"


def _show_dead(session: Session, limit: int) -> None:
    found = session.ask(lambda opened: opened.dead_events(limit=limit))
    session.print_rows(
        found,
        ("GIVEN UP", "NAME", "ID", "SUBSCRIBER", "ATTEMPTS", "WHY"),
        [
            (
                instant_text(each.died_at),
                each.name,
                each.event.event_id,
                each.subscription,
                each.attempts,
                each.error,
            )
            for each in found
        ],
        spare=("ATTEMPTS",),
        none="no delivery was given up",
    )


def _redeliver(session: Session, event_id: str) -> None:
    async def ask(opened: ScheduleService) -> int:
        return await opened.redeliver(event_id)

    number = session.ask(ask)
    to = "1 subscriber" if number == 1 else f"{number} subscribers"
    text = f"{event_id} is delivered again to {to}" if number else f"{event_id} was not given up"
    session.print(answers.REDELIVERED(id=event_id, deliveries=number), text)
    if not number:
        raise typer.Exit(1)
