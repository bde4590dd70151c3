"""Commands list, fires and log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.text import Text

from engine.cli.output import (
    EFFORT,
    OUTCOME,
    answers,
    colour_of,
    console,
    counted,
    instant_text,
    is_to_be_laid,
    outcome,
    print_json,
    print_table,
    shown_state,
    shown_status,
    took,
    why,
    without_worker,
)
from engine.cli.run_names import workflow_id
from engine.cli.target import (
    AnyKey,
    Limit,
    OfProject,
    OfTag,
    Reading,
    Session,
    command,
    keys_in_the_file,
    moment,
    on_signal,
    one_of,
    rows_of,
)
from engine.errors import did_you_mean
from engine.schedules import first_of
from engine.service import (
    FIRST_MOMENT,
    LAST_MOMENT,
    ActionRow,
    Backfill,
    Fire,
    JobStatus,
    ReasonCode,
    RunSummary,
    ScheduleKind,
    ScheduleRow,
    ScheduleService,
    State,
    Status,
    require_in_order,
)

if TYPE_CHECKING:
    from engine.service import Filters

commands = typer.Typer(rich_markup_mode=None)


# --- list ---
# ``sched list``: every schedule on one line.

_SPARE = ("WORKFLOW", "LAST FIRE", "WHEN", "ORIGIN", "PROJECT", "LAST STATUS")
_LATE = timedelta(seconds=30)
"""Age from which a due window counts as overdue; a worker looks every second."""
_NAMED = 5
_STUCK = 1000
"""Most failing runs that are read, to find those that are stuck."""
_EMPTY = "the ledger has no schedule yet; `sched apply` or a worker brings those of a file"


def _word_option(flag: str, noun: str, words: Sequence[str]) -> Any:
    """Return an option that accepts one of these words, and completes them."""

    def completed(typed: str) -> list[str]:
        return [word for word in words if word.startswith(typed)]

    return typer.Option(
        flag,
        metavar=noun.rpartition(" ")[2].upper(),
        help=f"Only {', '.join(words)}.",
        parser=one_of(noun, words),
        autocompletion=completed,
    )


@command(commands, "list", of=Reading)
def list_schedules(
    session: Session,
    project: OfProject = None,
    wide: Annotated[
        bool,
        typer.Option("--wide", help="Also how its last 20 runs ended, and its last failure."),
    ] = False,
    *,
    workflow: Annotated[
        str | None,
        typer.Option("--workflow", metavar="NAME", help="Only of this workflow: name, or name@1."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="TOPIC", help="Only of this topic.")
    ] = None,
    tag: OfTag = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="ID", help="Only of this ownerId.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="ID", help="Only of this tenantId.")
    ] = None,
    state: Annotated[State | None, _word_option("--state", "state", get_args(State))] = None,
    status: Annotated[
        JobStatus | None, _word_option("--status", "status", get_args(JobStatus))
    ] = None,
    kind: Annotated[
        ScheduleKind | None, _word_option("--kind", "kind", get_args(ScheduleKind))
    ] = None,
    correlation: Annotated[
        str | None,
        typer.Option("--correlation", metavar="ID", help="Only of this correlationId."),
    ] = None,
    request_id: Annotated[
        str | None,
        typer.Option("--request-id", metavar="ID", help="Only what was asked for under this id."),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="TEXT", help="Only keys that begin so.")
    ] = None,
) -> None:
    """Show every schedule: its workflow, times, state and last run."""
    filters: Filters = {
        "workflow": workflow,
        "topic": topic,
        "tag": tag,
        "owner_id": owner,
        "tenant_id": tenant,
        "correlation_id": correlation,
        "request_id": request_id,
        "state": state,
        "status": status,
        "kind": kind,
        "key_prefix": prefix,
    }

    async def read(
        opened: ScheduleService,
    ) -> tuple[list[ScheduleRow], Counter[str], list[RunSummary], str]:
        rows = await opened.schedules(project, **filters)
        stuck = Counter(fire.key for fire in await opened.failing(limit=_STUCK) if fire.is_stuck)
        summaries = await opened.run_summaries([row.key for row in rows]) if wide else []
        if any(each is not None for each in filters.values()) and not rows:
            return rows, stuck, summaries, "no schedule matches all of these filters"
        return rows, stuck, summaries, await _remark(opened, rows, project)

    rows, stuck, summaries, remark = session.ask(read)
    if session.as_json:
        each_last = summaries if wide else [None] * len(rows)
        print_json(
            [
                answers.LISTED_SCHEDULE(row, stuck_runs=stuck[row.key], last_runs=last)
                for row, last in zip(rows, each_last, strict=True)
            ]
        )
    elif rows and wide:
        _print_wide(rows, stuck, summaries)
    elif rows:
        _print(rows, stuck)
    if remark:
        typer.echo(remark, err=session.as_json)


async def _remark(opened: ScheduleService, rows: Sequence[ScheduleRow], project: str | None) -> str:
    """Return what is to be said below the schedules, or in their place; empty for nothing."""
    if not rows:
        if project is None:
            return _EMPTY
        return _nothing_of(project, {row.project for row in await opened.schedules()})
    late = overdue(rows, datetime.now(UTC))
    alone = late or without_worker(rows, await opened.served())
    return "\n".join(filter(None, [alone, *await opened.left_alone(rows)]))


def _nothing_of(project: str, known: Collection[str]) -> str:
    if not known:
        return _EMPTY
    hint = did_you_mean(project, known, f"there is {', '.join(sorted(known)[:_NAMED])}")
    return f"no schedule of project {project}; {hint}"


def overdue(rows: Sequence[ScheduleRow], now: datetime) -> str:
    """Return a warning about overdue windows; empty if there are none.

    The ledger does not know the cause. Schedules with a problem of their own show it in their row.
    """
    late = [
        (row.next_fire_at, row.key)
        for row in rows
        if row.next_fire_at
        and row.state == "active"
        and not row.problem
        and row.next_fire_at < now - _LATE
    ]
    if not late:
        return ""
    keys = [key for _, key in sorted(late)]
    return (
        f"no worker has started what is due since {instant_text(min(late)[0])}"
        f" ({first_of(keys, _NAMED)}):"
        " start a worker (`sched up` or `sched worker`), or see what yours says"
    )


def _problem(row: ScheduleRow, stuck: int) -> str | None:
    cannot = f"{counted(stuck, 'run')} stuck: `sched show {row.key}`" if stuck else None
    return "; ".join(filter(None, [row.problem, cannot])) or None


def _print(rows: Sequence[ScheduleRow], stuck: Mapping[str, int]) -> None:
    projects, origins = {row.project for row in rows}, {row.origin for row in rows}
    print_table(
        (
            "KEY",
            "WORKFLOW",
            "WHEN",
            "STATE",
            "NEXT FIRE",
            "LAST FIRE",
            "LAST STATUS",
            "PROJECT",
            "ORIGIN",
            "PROBLEM",
        ),
        (
            (
                row.key,
                row.workflow,
                _when(row),
                shown_state(row),
                instant_text(row.next_start_at),
                instant_text(row.last_fire_at),
                row.last_status,
                row.project if len(projects) > 1 else "",
                row.origin if "api" in origins else "",
                _problem(row, stuck[row.key]),
            )
            for row in rows
        ),
        optional=("PROJECT", "ORIGIN", "PROBLEM"),
        spare=_SPARE,
    )


def _print_wide(
    rows: Sequence[ScheduleRow], stuck: Mapping[str, int], summaries: Sequence[RunSummary]
) -> None:
    print_table(
        (
            "KEY",
            "STATE",
            "NEXT FIRE",
            "LAST STATUS",
            "SUCCESS",
            "MEDIAN",
            "LAST FAILURE",
            "WHY",
            "PROBLEM",
        ),
        (
            (
                row.key,
                shown_state(row),
                instant_text(row.next_start_at),
                row.last_status,
                _success(runs),
                took(runs.median_duration_ms),
                instant_text(runs.last_failure_at),
                runs.error,
                _problem(row, stuck[row.key]),
            )
            for row, runs in zip(rows, summaries, strict=True)
        ),
        optional=("WHY", "PROBLEM"),
        spare=("NEXT FIRE", "LAST STATUS"),
    )


def _success(of: RunSummary) -> str | None:
    """Return the success rate of the last runs: ``95 % of 20``."""
    rate = of.success_rate
    return None if rate is None else f"{rate:.0%} of {of.runs}".replace("%", " %")


def _when(row: ScheduleRow) -> str:
    if row.schedule is None:
        return "?"
    zoned = row.schedule.kind == "cron" and row.schedule.timezone != "UTC"
    return row.schedule.when + (f" {row.schedule.timezone}" if zoned else "")


# --- fires ---
# ``sched fires``: the outcome of each window.


@command(commands, "fires", of=Reading)
def list_fires(
    session: Session,
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="KEY|RUN-ID",
            help="Only this schedule, or this run.",
            autocompletion=keys_in_the_file,
        ),
    ] = None,
    status: Annotated[Status | None, _word_option("--status", "status", get_args(Status))] = None,
    reason_code: Annotated[
        ReasonCode | None, _word_option("--reason-code", "reason code", get_args(ReasonCode))
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="AGE|ISO", help="The first fire time: 2h, or a moment."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="AGE|ISO", help="The last fire time.")
    ] = None,
    limit: Limit = 20,
    *,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Keep running: show changes, and the progress of runs."
        ),
    ] = False,
) -> None:
    """Show what became of each window, newest first.

    With --follow the oldest comes first, and every further line is a change: a window's new status,
    or the progress that a run reports with ctx.progress. Ctrl-C ends it; of one run, its end does
    too. With --json each line is a document.
    """
    key = None if key is None else workflow_id(session, key)
    begin = FIRST_MOMENT if since is None else moment(since, "--since", bare="ago")
    end = LAST_MOMENT if until is None else moment(until, "--until", bare="ago")
    require_in_order(begin, end)
    if follow and (since is not None or until is not None):
        raise typer.BadParameter("goes without --since and --until", param_hint="'--follow'")
    if follow:
        _follow(session, key, status, reason_code, limit)
        return

    async def read(opened: ScheduleService) -> tuple[Sequence[Fire], list[Backfill]]:
        if key and ":" in key:  # keys have no colon
            window = await opened.fire(key)
            return [window] if window else [], await opened.laying()
        asked = opened.fires(
            key=key, status=status, reason_code=reason_code, since=begin, until=end, limit=limit
        )
        return await rows_of(opened, key, asked), await opened.laying()

    fires, laying = session.ask(read)
    of = f" of {key}" if key else ""
    with_code = f" with the reason code {reason_code}" if reason_code else ""
    state = f"is {status} now" if status else "has been decided yet"
    session.print_rows(
        [
            answers.LISTED_FIRE(
                fire,
                backfill_pending=is_to_be_laid(fire, laying),
                link=session.target.run_link(fire.workflow_id, fire.run_id),
            )
            for fire in fires
        ],
        ("FIRE TIME", "KEY", *OUTCOME, "RUN", "REASON"),
        (_fire_row(fire, laying) for fire in fires),
        spare=("TIMING", "LAG", "RUN", *EFFORT),
        optional=EFFORT,
        none=f"no window{of}{with_code}{' in that time' if since or until else ''} {state}",
    )


def _follow(
    session: Session,
    name: str | None,
    status: Status | None,
    reason_code: ReasonCode | None,
    limit: int,
) -> None:
    # Importing the Temporal SDK takes longer than listing fires.
    from engine.cli.temporal import Follower

    out = console()

    def show(fire: Fire, progress: str) -> None:
        if session.as_json:
            print_json(answers.FOLLOWED_FIRE(fire, progress=progress or None), indent=None)
            return
        note = progress or why(fire)
        out.print(
            Text.assemble(
                f"{instant_text(fire.fire_time)}  {fire.key}  ",
                (shown_status(fire), colour_of(shown_status(fire))),
                f"  {fire.workflow_id}" + (f"  {note}" if note else ""),
            )
        )

    follower, of = Follower(name, status, reason_code, limit, show=show), session.target

    async def run() -> None:
        # Exit without cleanup: this only reads, and the Temporal SDK may hang when a call in flight
        # is cancelled, as at the end of an event loop.
        on_signal(signal.SIGINT, _leave_at_once)
        await follower.run(of)

    asyncio.run(run())


def _leave_at_once() -> None:
    with contextlib.suppress(OSError):  # the reader may have closed the pipe
        sys.stdout.flush()
    os._exit(128 + signal.SIGINT)


def _fire_row(fire: Fire, laying: list[Backfill]) -> tuple[object, ...]:
    to_come = ["a backfill is still to come to it"] if is_to_be_laid(fire, laying) else []
    return (
        instant_text(fire.fire_time),
        fire.key,
        *outcome(fire),
        fire.workflow_id,
        "; ".join(filter(None, [why(fire), *to_come])),
    )


# --- log ---
# ``sched log``: who did what to schedules and runs, and why.


@command(commands, "log", of=Reading)
def list_actions(session: Session, key: AnyKey = None, limit: Limit = 20) -> None:
    """Show the actions on schedules and runs, newest first."""
    rows = session.ask(lambda opened: rows_of(opened, key, opened.actions(key=key, limit=limit)))
    session.print_rows(
        rows,
        ("AT", "BY", "VERB", "KEY", "RUN", "REASON", "STATE"),
        map(_action_row, rows),
        spare=("STATE", "RUN", "BY"),
        none=f"no action{f' on {key}' if key else ''} yet",
    )


def _action_row(row: ActionRow) -> tuple[object, ...]:
    return (
        instant_text(row.at),
        row.by,
        row.verb,
        row.key,
        row.workflow_id,
        row.reason,
        _change(row.before, row.after),
    )


def _change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    if before is None and after is None:
        return ""
    text = "nothing" if after is None else _state(after)
    return text if before is None else f"{_state(before)} → {text}"


def _state(value: object) -> str:
    """Return a state as text: ``paused (at 2026-11-21T12:00:00Z, reason deploy)``."""
    match value:
        case Mapping():
            parts = [(name, each) for name, each in value.items() if each not in (None, {}, [])]
            return ", ".join(
                f"{name} ({_state(each)})"
                if isinstance(each, Mapping)
                else f"{name} {_state(each)}"
                for name, each in parts
            )
        case list() | tuple():
            return "; ".join(map(_state, value))
        case bool():
            return "yes" if value else "no"
        case datetime():
            return instant_text(value) or ""
    return str(value)
