"""Commands ``sched at``, ``reschedule`` and ``start``, for what is in no file."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer

from engine.cli.output import WaitForWorker, clock, fields, fire_json, unserved_key, wait_for_worker
from engine.cli.target import Key, Reason, Session, command, is_date, parse_json_input, project_here
from engine.schedules.terms import parse_duration, readable_definition
from engine.service import ApplicationSchedule, ScheduleService, Started

Moment = Annotated[
    str,
    typer.Argument(
        metavar="MOMENT",
        help="When: 2026-12-24T18:00Z, or local to --timezone without an offset.",
    ),
]
Zone = Annotated[
    str | None,
    typer.Option("--timezone", metavar="TZ", help="The IANA zone of a moment without an offset."),
]

RequestId = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="A second request of this id is refused."),
]
TaskQueue = Annotated[
    str, typer.Option("--task-queue", metavar="NAME", help="Where its workers listen.")
]
External = Annotated[
    bool, typer.Option("--external", help="WORKFLOW is a Temporal type of other code.")
]
Project = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        help="Whose workers start it.  [default: that of `sched up`, or of the file, here]",
    ),
]


commands = typer.Typer(rich_markup_mode=None)


@command(commands)
def at(
    session: Session,
    moment: Moment,
    workflow: Annotated[str, typer.Argument(metavar="WORKFLOW", help="What to start.")],
    *,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Its key; else one is generated.")
    ] = None,
    own_input: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="The workflow's argument.")
    ] = None,
    timezone: Zone = None,
    request_id: RequestId = None,
    task_queue: TaskQueue = "sched",
    external: External = False,
    project: Project = None,
    wait: WaitForWorker = False,
    reason: Reason = None,
) -> None:
    """Start a workflow once, at a future time.

    It prints the key by which `sched show`, `reschedule` and `cancel` know it, and warns where no
    worker lives that would start it.
    """
    given: dict[str, Any] = {"taskQueue": task_queue, "external": external}
    _require_place(moment, timezone)
    if argument := parse_json_input(own_input):
        (given["input"],) = argument
    if timezone is not None:
        given["timezone"] = timezone

    async def ask(opened: ScheduleService) -> None:
        asked = await opened.schedule_at(
            workflow, moment, key=key, request_id=request_id,
            project=project or project_here(session.target), reason=reason, **given,
        )  # fmt: skip
        _print(session, asked, warns=not wait)
        if wait:
            await wait_for_worker(partial(unserved_key, opened, asked.key))

    session.ask(ask)


@command(commands)
def reschedule(
    session: Session,
    key: Key,
    moment: Annotated[
        str | None, typer.Argument(metavar="MOMENT", help="When now, as for `sched at`.")
    ] = None,
    *,
    every: Annotated[
        str | None, typer.Option("--every", metavar="5m", help="From now on again and again.")
    ] = None,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="EXPR", help="From now on by this expression.")
    ] = None,
    timezone: Zone = None,
    reason: Reason = None,
) -> None:
    """Change the times of a schedule that `sched at` or an application made.

    What a schedule file declares is changed in its file.
    """
    when = _when(moment, every, cron)
    if moment is not None:
        _require_place(moment, timezone)
    if timezone is not None:
        when["timezone"] = timezone

    _print(session, session.ask(lambda opened: opened.reschedule(key, reason=reason, **when)))


@command(commands)
def start(
    session: Session,
    workflow: Annotated[
        str, typer.Argument(metavar="WORKFLOW", help="What to start: name, or name@version.")
    ],
    start_id: Annotated[
        str, typer.Argument(metavar="ID", help="What for, as an order number; used once for ever.")
    ],
    *,
    own_input: Annotated[
        str | None, typer.Option("--input", metavar="JSON", help="The workflow's argument.")
    ] = None,
    task_queue: TaskQueue = "sched",
    project: Project = None,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="TIME", help="Wait until it has begun: 30s.")
    ] = None,
) -> None:
    """Start a workflow now under an ID, once for ever, as applications do.

    The same ID and input again start nothing, and another input is refused.
    """
    try:
        patience = None if wait is None else parse_duration(wait)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--wait'") from None
    argument = parse_json_input(own_input)

    async def ask(opened: ScheduleService) -> Started:
        return await opened.start(
            workflow, *argument, id=start_id, task_queue=task_queue, wait=patience,
            project=project or project_here(session.target),
        )  # fmt: skip

    done = session.ask(ask)
    status = done.fire.status if done.fire else "no longer in the ledger"
    again = "" if done.new else f", started before by {done.start.requested_by}"
    document = {
        **fields(done, "workflow_id new"),
        **fields(done.start, "requested requested_at requested_by"),
        "fire": fire_json(done.fire) if done.fire else None,
        "waiting": done.waiting,
    }
    session.print(document, f"{done.workflow_id}: {status}{again}")
    if done.waiting:
        typer.echo(done.waiting, err=True)


def _when(moment: str | None, every: str | None, cron: str | None) -> dict[str, Any]:
    given = {
        name: value
        for name, value in {"at": moment, "everyMs": every, "cron": cron}.items()
        if value is not None
    }
    if len(given) != 1:
        raise typer.BadParameter("name one of MOMENT, --every and --cron", param_hint="MOMENT")
    if every is not None:
        try:
            return {"everyMs": round(parse_duration(every).total_seconds() * 1000)}
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="'--every'") from None
    return given


def _require_place(moment: str, timezone: str | None) -> None:
    """Refuse a moment without offset and zone, in terms of options instead of a file's fields."""
    if timezone is not None or is_date(moment):
        return
    with suppress(ValueError):  # the service reports text that is no moment at all
        if datetime.fromisoformat(moment).tzinfo is None:
            raise typer.BadParameter(
                f"{moment!r} has no offset; append Z for UTC, or name its --timezone",
                param_hint="MOMENT",
            )


def _print(session: Session, asked: ApplicationSchedule, *, warns: bool = True) -> None:
    at, timezone = asked.next_fire_at, asked.schedule.timezone
    when = "paused" if at is None else clock(at, timezone, seconds=True)
    document = fields(asked, "key project next_fire_at")
    document |= {
        "definition": readable_definition(asked.schedule.to_json()),
        "waiting": asked.waiting,
    }
    session.print(document, f"{asked.key}: {asked.schedule.workflow}, {when}")
    if asked.waiting and warns:
        typer.echo(asked.waiting, err=True)
