"""Command ``sched show``: everything about one schedule on one page."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from engine.cli.next import FireSource, Upcoming, print_upcoming, upcoming
from engine.cli.output import (
    EFFORT,
    OUTCOME,
    answers,
    as_yaml,
    clock,
    console,
    counted,
    instant_text,
    is_to_be_laid,
    outcome,
    print_json,
    print_table,
    relative,
    runs_link,
    shadow_mode,
    shadowed,
    shown_status,
    why,
    without_worker,
)
from engine.cli.run_names import workflow_id
from engine.cli.run_page import RunReader, details_lines, effort_line, labelled
from engine.cli.target import Reading, RunName, Session, Target, command, moment
from engine.schedules import Rule
from engine.schedules.describe import describe
from engine.service import Backfill, DataGap, Fire, ScheduleRow, ScheduleService

SHOWN = 5
_ASKED = 100
"""Most queued fires and skips to read; more are not counted."""

_NOTHING_WILL = {
    "paused": "nothing fires until it is resumed",
    "disabled": "nothing fires until its file says `enabled: true`",
    "ended": "no fire is left",
    "retired": "it is in no file, or was cancelled; nothing fires until a file declares it",
}


commands = typer.Typer(rich_markup_mode=None)


@command(commands, of=Reading)
def show(
    session: Session,
    key: RunName,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Only the window of this fire time."),
    ] = None,
) -> None:
    """Show one schedule: its definition, state, last and next fires, and links.

    With --at, or with the id of a run, it shows one window: what became of it, the tries of its
    run, and why that failed. Ends with 1 if the ledger has no such window.
    """
    run = workflow_id(session, key)
    if at is not None or ":" in run:
        _show_window(session, run, None if at is None else moment(at, "--at", bare="ago"))
        return

    async def read(opened: ScheduleService) -> Page:
        row = await opened.schedule(key)
        now = datetime.now(UTC)
        skipped = await opened.fires(key=key, status="skipped", limit=_ASKED)
        skips = [fire for fire in reversed(skipped) if fire.fire_time > now]
        fires = (await opened.fires(key=key, limit=SHOWN + len(skips)))[len(skips) :]
        queued = await opened.fires(key=key, status="queued", limit=_ASKED)
        lacks = [without_worker([row], await opened.served()), *await opened.left_alone([row])]
        return Page(
            row,
            fires,
            queued[::-1],
            skips,
            session.target,
            now,
            alone="\n".join(filter(None, lacks)),
            overflow=await opened.overflow(key),
            children=tuple(await opened.children(key)),
            backfills=tuple(await opened.backfills(key, limit=SHOWN)),
            data_gaps=tuple(await opened.data_gaps(key)),
            failing=await opened.failing(key=key, limit=_ASKED),
        )

    page = session.ask(read)
    if session.as_json:
        print_json(page.as_json())
        if page.alone:
            typer.echo(page.alone, err=True)
    else:
        page.print()


@dataclass(frozen=True, slots=True)
class Page:
    """Page about one schedule, and its rendering.

    Attributes:
        fires: the last fires.
        queued: the fires that wait in the queue, in order.
        skips: skipped windows that are still to come.
        children: the schedules that wait for its windows.
        backfills: the last backfills, newest first.
        data_gaps: data ranges that no run covers, newest first.
        failing: the fires of open runs with a step that keeps failing, newest first.
        alone: warnings that no worker serves it or polls its task queue; empty if one does.
        overflow: how many windows found the queue full, and when the last of them opened.
    """

    row: ScheduleRow
    fires: list[Fire]
    queued: list[Fire]
    skips: list[Fire]
    target: Target
    now: datetime
    alone: str
    overflow: tuple[int, datetime | None] = (0, None)
    children: tuple[str, ...] = ()
    backfills: tuple[Backfill, ...] = ()
    data_gaps: tuple[DataGap, ...] = ()
    failing: Sequence[Fire] = ()

    @property
    def next(self) -> list[Upcoming]:
        """Next fires; none while the schedule is not active."""
        if self.row.state != "active" or self.row.schedule is None:
            return []
        remarks = {fire.fire_time: f"skipped: {fire.reason}" for fire in self.skips}
        schedule = self.row.schedule
        source = FireSource.of(schedule, last=self.row.last_start_at)
        return [
            replace(each, remark=remarks.get(each.fire_time, shadowed(schedule, each.fire_time)))
            for each in upcoming(source, self.now, SHOWN)
        ]

    @property
    def links(self) -> dict[str, str]:
        """Links to Temporal's Web UI: ``runs``, and each shown run by its workflow id."""
        ui = self.target.ui_url
        if ui is None:
            return {}
        runs = {
            fire.workflow_id: link
            for fire in self.fires
            if (link := self.target.run_link(fire.workflow_id, fire.run_id))
        }
        return {"runs": runs_link(ui, self.target.namespace, self.row.key), **runs}

    def as_json(self) -> dict[str, Any]:
        """Return the output of ``--json``."""
        links = self.links
        fires = [
            answers.LISTED_FIRE(
                fire,
                backfill_pending=is_to_be_laid(fire, self.backfills),
                link=links.get(fire.workflow_id),
            )
            for fire in self.fires
        ]
        return answers.FULL_SCHEDULE(
            self.row,
            self,
            queue_full=dict(zip(("windows", "last"), self.overflow, strict=True)),
            last_fires=fires,
            next=[fire.as_json() for fire in self.next],
            link=links.get("runs"),
        )

    @property
    def max_concurrent_runs(self) -> int | None:
        """Limit of open runs; None is no limit."""
        schedule = self.row.schedule
        return (
            None
            if schedule is None or schedule.overlap == "allow"
            else schedule.max_concurrent_runs
        )

    def print(self) -> None:
        """Print the text output."""
        out = console()
        sentences = console(wraps=sys.stdout.isatty())  # lines are never wrapped in a pipe
        sentences.print(f"{self.row.key}: {self._state()}", style="bold")
        if not self.row.of_starts:
            self._print_declared(sentences)
        for line in self._still_failing():
            sentences.print(line, style="red")
        self._print_fires()
        if links := self.links:
            out.print()
            pages = [("all", links.pop("runs")), *links.items()]
            print_table(("RUNS", "WEB UI"), pages, whole=True)  # a truncated URL is useless

    def _print_declared(self, sentences: Console) -> None:
        row = self.row
        if problem := row.problem:
            sentences.print(f"problem: {problem}", style="red")
        for warning in (*filter(None, [self.alone]), *(gap.description for gap in self.data_gaps)):
            sentences.print(warning, style="yellow")
        if row.former:
            sentences.print(f"renamed; before it was {', '.join(reversed(row.former))}")
        for line in (*self._relations(), *self._held_back()):
            sentences.print(line)
        # A new interval takes effect with its present window, which opened before.
        defined = row.in_force_since
        since = clock(defined.replace(microsecond=0), "UTC")
        sentences.print(
            f"project {row.project}, definition {row.definition_version} since {since},"
            f" series {row.series}, runs {row.workflow_type or 'nothing yet'},"
            f" zone rules {row.tzdata}"
        )
        if row.limit_left is not None and row.schedule:
            sentences.print(f"{row.limit_left} of {row.schedule.limit} windows are left to start")
        if row.schedule:
            sentences.print(f"fires {describe(row.schedule, now=self.now)}")
            out = console()
            out.print()
            out.print("\n".join(as_yaml(row.schedule)))

    def _state(self) -> str:
        row = self.row
        if row.of_starts:
            return f"runs of {row.workflow} that applications start"
        if row.state == "paused" and row.pause and row.pause.until:
            return f"paused; nothing fires {row.pause.lasts}"
        if row.state != "active":
            gone_on = row.successor and f"it goes on as {row.successor}"
            return f"{row.state}; {gone_on or _NOTHING_WILL[row.state]}"
        if row.next_start_at is None:
            return "active, but no fire is left"
        moment = row.next_start_at
        timezone = row.schedule.timezone if row.schedule else "UTC"
        shown = clock(moment, timezone)
        if timezone != "UTC":
            shown += f" {timezone} ({clock(moment, 'UTC')})"
        word = "next fire" if moment > self.now else "due since"
        if row.schedule and row.in_shadow:
            mode = f"{shadow_mode(row.schedule)}: windows are recorded and nothing starts"
            return f"{mode}; next window {shown}, {relative(moment, self.now)}"
        return f"active, {word} {shown}, {relative(moment, self.now)}"

    @property
    def parents(self) -> tuple[Rule, ...]:
        """The schedules whose windows it waits for."""
        return self.row.schedule.follows if self.row.schedule else ()

    def _relations(self) -> list[str]:
        """Return lines about the schedules that it follows, and those that follow it."""
        parents = [
            f"{rule.parent} ({rule.when}{', latest' if rule.window == 'latest' else ''})"
            for rule in self.parents
        ]
        lines = [f"follows {', '.join(parents)}"] if parents else []
        return [*lines, *([f"followed by {', '.join(self.children)}"] if self.children else [])]

    def _held_back(self) -> list[str]:
        """Return lines about the pause, the queue, backfills and windows skipped ahead."""
        lines = []
        if pause := self.row.pause:
            by = f" by {pause.by}" if pause.by else ""
            lines.append(f"paused since {instant_text(pause.at)}{by}: {pause.reason}")
        if self.queued:
            first = self.queued[0]
            waits = f", {first.reason}" if first.reason_code == "dependency" else ""
            lines.append(f"queued: {len(self.queued)}, first {first.workflow_id}{waits}")
        count, last = self.overflow
        if count:
            windows = counted(count, "window")
            lines.append(
                f"skipped because the queue was full: {windows}, last {instant_text(last)}"
            )
        lines += map(_backfill, self.backfills)
        lines += [
            f"skips {fire.workflow_id} of {instant_text(fire.fire_time)}: {fire.reason}"
            for fire in self.skips[:SHOWN]
        ]
        return lines

    def _still_failing(self) -> list[str]:
        """Return a line for each step of an open run that keeps failing."""
        lines = [
            f"still failing: {fire.workflow_id}: {step}"
            for fire in self.failing[:SHOWN]
            for step in fire.failing
        ]
        if len(self.failing) > SHOWN:
            more = counted(len(self.failing) - SHOWN, "more run")
            lines.append(f"still failing: {more}; `sched dead list {self.row.key} --failing`")
        return lines

    def _print_fires(self) -> None:
        out = console()
        out.print()
        if self.fires:
            print_table(
                ("LAST FIRES", *OUTCOME, "RUN", "REASON"),
                map(_fire_row, self.fires),
                optional=("REASON", *EFFORT),
                spare=("TIMING", "LAG", "RUN", *EFFORT),
            )
        else:
            out.print("no window has been decided yet")
        if shown := self.next:
            out.print()
            print_upcoming(shown, self.now, "NEXT FIRES")


def _backfill(of: Backfill) -> str:
    """Return a sentence with the progress or the result of a backfill."""
    period = f"backfill {of.id} from {instant_text(of.first)} to {instant_text(of.last)}"
    laid = f"{of.laid} laid, {sum(of.left_alone.values())} left alone"
    if of.state == "laying":
        waits = f"; it waits: {of.error}" if of.error else ""
        return f"{period}: {of.done} of {of.windows} windows done, {laid}{waits}"
    if of.state == "done":
        return f"{period}: done, {laid}"
    return f"{period}: ended ({of.ended_reason}), {laid}, {of.windows - of.done} not laid"


def _fire_row(fire: Fire) -> tuple[object, ...]:
    run = fire.run_id and fire.workflow_id
    return instant_text(fire.fire_time), *outcome(fire), run, why(fire)


# --- one window ---


def _show_window(session: Session, key: str, at: datetime | None) -> None:
    """Print the fire of one window, with the tries and the failure of its run."""
    where = session.target

    async def read(opened: ScheduleService) -> dict[str, object] | None:
        if at is None:
            fire = await opened.fire(key)
        else:
            await opened.schedule(key)
            fire = await opened.fire_at(key, at)
        if fire is None:
            return None
        link = where.run_link(fire.workflow_id, fire.run_id)
        session.print_lines(_window_lines(fire, link))  # before Temporal is asked
        details = await RunReader(opened, where).read(fire)
        session.print_lines(details_lines(details))
        return answers.FIRE_PAGE(fire, details, link=link)

    found = session.ask(read)
    if found is None:
        of = f"run {key}" if at is None else f"window of {key} at {instant_text(at)}"
        hint = f"`sched explain {key} {instant_text(at) or ''}".rstrip() + "` says why"
        session.print(None, f"the ledger has no {of}; {hint}")
        raise typer.Exit(1)
    session.print(found, [])


def _window_lines(fire: Fire, link: str | None) -> list[str]:
    """Return what became of one window as text lines."""
    facts = {
        "why": why(fire),
        "window": f"{fire.key} {fire.bucket}, fire time {instant_text(fire.fire_time)}",
        "sent": instant_text(fire.starting_at),
        "started": instant_text(fire.started_at),
        "closed": instant_text(fire.closed_at),
        "took": effort_line(fire),
        "run": link,
    }
    return [f"{fire.workflow_id}: {shown_status(fire)}", *labelled(facts)]
