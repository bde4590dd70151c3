"""``sched pause`` and ``sched resume``."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated, Any, get_args

import typer

from engine.cli.environment import service
from engine.cli.moments import moment
from engine.cli.options import DEFAULT_DATA_DIR, DataDir, Json, Key, Reason, one_of, whole_number
from engine.cli.output import counted, instant, pause_json, paused_until, print_json
from engine.errors import LedgerError
from engine.runtime.verbs.pausing import Paused, Resumed
from engine.schedules.catch_up import CatchUp
from engine.schedules.durations import parse_duration
from engine.schedules.policy_fields import MOST_CAUGHT_UP, Order, Policy
from engine.schedules.rates import Rate, parse_rate
from engine.service import ScheduleService

_POLICIES: tuple[str, ...] = get_args(get_args(Policy)[0])
_ORDERS: tuple[str, ...] = get_args(get_args(Order)[0])

Made = Annotated[
    str | None,
    typer.Option(
        "--catch-up",
        metavar="POLICY",
        help=f"What becomes of the windows of the pause: {', '.join(_POLICIES)}."
        "  [default: the schedule's catchUp.pause]",
        parser=one_of("policy", _POLICIES),
        show_default=False,
    ),
]
Most = Annotated[
    int | None,
    typer.Option(
        "--max", metavar="N", help="Of `all`: the newest so many.", parser=whole_number,
        show_default=False,
    ),
]  # fmt: skip
Ordered = Annotated[
    str | None,
    typer.Option(
        "--order", metavar="ORDER", help="Of `all`: oldest or newest first.",
        parser=one_of("order", _ORDERS), show_default=False,
    ),
]  # fmt: skip
Paced = Annotated[
    str | None,
    typer.Option("--rate", metavar="RATE", help="Of `all`: so fast.", show_default=False),
]
Within = Annotated[
    str | None,
    typer.Option("--window", metavar="TIME", help="No window older than this.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(pause)
    app.command()(resume)


def pause(
    key: Key,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")],
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="ISO", help="When it ends by itself.", show_default=False),
    ] = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Let a schedule rest; no deploy wakes it.

    What nobody has begun to send is skipped; runs that are open go on. Pausing again replaces
    reason and end.
    """
    end = moment(until, "--until") if until is not None else None
    if not reason.strip():
        raise typer.BadParameter(
            "it is empty; say why, for whoever wonders", param_hint="'--reason'"
        )

    async def act() -> Paused:
        async with service(data_dir) as opened:
            return await opened.pause(key, reason=reason, until=end)

    done = asyncio.run(act())
    if as_json:
        before, after = pause_json(done.before), pause_json(done.pause)
        print_json({"key": key, "paused": after, "before": before})
        return
    again = "again " if done.before else ""
    typer.echo(f"{key} is paused {again}{paused_until(done.pause)}: {reason}")


def resume(
    key: Key,
    *,
    reason: Reason = None,
    policy: Made = None,
    most: Most = None,
    order: Ordered = None,
    rate: Paced = None,
    window: Within = None,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    as_json: Json = False,
) -> None:
    """Let a paused schedule fire again. Replays nothing unless asked.

    With --catch-up what is not named is as in the schedule's own catchUp.
    """
    asked = _asked(policy, most=most, order=order, rate=rate, window=window)

    async def act() -> Resumed:
        async with service(data_dir) as opened:
            make_up = await _made_up(opened, key, asked) if asked else None
            return await opened.resume(key, reason=reason, make_up=make_up)

    done = asyncio.run(act())
    if as_json:
        print_json(
            {
                "key": key,
                "before": pause_json(done.before),
                "next_fire_at": instant(done.next_fire_at),
                "caught_up": done.caught_up,
            }
        )
        return
    typer.echo(_told(done))


def _asked(
    policy: str | None,
    *,
    most: int | None,
    order: str | None,
    rate: str | None,
    window: str | None,
) -> dict[str, Any]:
    """Return the fields of ``catchUp`` that the command line names.

    Raises:
        typer.BadParameter: one of them is none, or does not go with the others.
    """
    of_all = {"max": most, "order": order, "rate": rate}
    for name, value in of_all.items():
        if value is not None and policy != "all":
            raise typer.BadParameter("goes with `--catch-up all`", param_hint=f"'--{name}'")
    if window is not None and policy in {None, "none"}:
        raise typer.BadParameter("goes with `--catch-up latest` or `all`", param_hint="'--window'")
    if most is not None and most > MOST_CAUGHT_UP:
        raise typer.BadParameter(
            f"{most} is more than one resume can hold; write at most {MOST_CAUGHT_UP}",
            param_hint="'--max'",
        )
    asked = {"policy": policy, **of_all, "rate": _rate(rate), "window": _window(window)}
    return {name: value for name, value in asked.items() if value is not None}


def _rate(text: str | None) -> Rate | None:
    try:
        return None if text is None else parse_rate(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}; {error}", param_hint="'--rate'") from None


def _window(text: str | None) -> timedelta | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}; {error}", param_hint="'--window'") from None


async def _made_up(opened: ScheduleService, key: str, asked: dict[str, Any]) -> CatchUp:
    row = await opened.schedule(key)
    if row.schedule is None:
        raise LedgerError(f"the definition of {key} cannot be read", cure="use a newer version")
    return row.schedule.catch_up.model_copy(update=asked)


def _told(done: Resumed) -> str:
    if done.before is None:
        return f"{done.key} was not paused"
    following = instant(done.next_fire_at)
    told = (
        f"{done.key} fires again, next at {following}"
        if following
        else (f"{done.key} is not paused any more, but no fire is to come")
    )
    if done.caught_up:
        told += f"; caught up: {counted(done.caught_up, 'window')} of the pause"
    return told
