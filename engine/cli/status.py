"""Commands status, workers, queues and doctor."""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import typer

from engine.cli.output import answers, binding_text, console, instant_text, print_json, relative
from engine.cli.target import (
    DEFAULT_FILE,
    Reading,
    Schedules,
    Session,
    SetupFunction,
    Target,
    command,
)
from engine.errors import Code, EngineError, LedgerError, LedgerUnavailable, TemporalUnavailable
from engine.ledger.postgres.address import place_of
from engine.schedules import KEY_ATTRIBUTE, ScheduleFile, first_of
from engine.service import (
    MOST_COUNTED,
    Finding,
    Fire,
    QueueRow,
    QueueUse,
    ScheduleService,
    ServerState,
    StatusReport,
    TemporalFacts,
    WorkerRow,
)

commands = typer.Typer(rich_markup_mode=None)

# --- workers ---

_NAMED = 5


@command(commands, of=Reading)
def workers(session: Session) -> None:
    """Show every worker: what it serves, and when it last announced itself.

    A worker that stops withdraws and is not shown. One that was killed is `silent`.
    """
    rows = session.ask(lambda opened: opened.workers())
    session.print_rows(
        rows,
        (
            "HOST",
            "STATE",
            "SEEN",
            "CLAIMS",
            "PROJECT",
            "TASK QUEUE",
            "VERSION",
            "STARTED",
            "REPLICA",
            "TYPES",
        ),
        map(_worker_row, rows),
        spare=("STARTED", "VERSION", "REPLICA"),
        none="no worker has announced itself; `sched up` or `sched worker` starts one",
    )


def _worker_row(row: WorkerRow) -> tuple[object, ...]:
    return (
        row.host,
        row.state,
        f"{_seconds(row.age)} ago",
        row.claims,
        row.project,
        row.task_queue,
        row.version,
        instant_text(row.started_at),
        row.replica,
        first_of(row.types, _NAMED),
    )


# --- queues ---


@command(commands, of=Reading)
def queues(session: Session) -> None:
    """Show every step queue: its limits, and how many of its steps run now."""
    rows = session.ask(lambda opened: opened.queues())
    session.print_rows(
        [answers.QUEUE(row, running=_running(row, use)) for row, use in rows],
        ("QUEUE", "PROJECT", "LIMITS", "RUNNING", "STATE"),
        [
            (
                row.queue,
                row.project,
                row.limits,
                _use_text(_running(row, use)),
                f"dropped {instant_text(row.dropped_at)}" if row.dropped_at else "declared",
            )
            for row, use in rows
        ],
        spare=("PROJECT",),
        none="no file declares a step queue; see `sched docs queues`",
    )


def _running(row: QueueRow, use: Sequence[QueueUse]) -> dict[str, int] | None:
    """Return how many steps run by task queue; None without a concurrency, which has no slots."""
    if row.limits.concurrency is None:
        return None
    return {each.task_queue: each.running for each in use}


def _use_text(running: Mapping[str, int] | None) -> str:
    if running is None:
        return "not counted"
    return ", ".join(f"{number} on {queue}" for queue, number in running.items()) or "none"


# --- status ---

_SHOWN = 10
_LEAST = 20
"""Characters of a wrapped line at least, besides its indent."""
_NOUNS = {"ledger": "ledger", "temporal": "Temporal"}


@command(commands, of=Reading)
def status(session: Session, setup: SetupFunction = None) -> None:
    """Show on one screen whether all is well, and if not, what is wrong and why.

    Servers, workers, windows that have not fired with their cause, stuck runs, and open alerts.
    Ends with 1 when something is wrong. `sched docs operating` explains each cause.
    """
    # The import of Temporal's SDK takes longer than most commands.
    from engine.cli.temporal import connected
    from engine.runtime import Setup

    options = Setup.load(setup)

    async def temporal() -> str | None:
        try:
            await connected(session.target, options)
        except TemporalUnavailable as error:
            return str(error)
        return None

    async def read() -> StatusReport:
        asked = asyncio.create_task(temporal())
        try:
            report = await session.answer(lambda opened: opened.status())
        except LedgerUnavailable as error:
            report = StatusReport(servers=[ServerState("ledger", str(error))])
        if not session.as_json:
            _print_ledger(report, session.target)
        return report.with_temporal(await asked)

    report = asyncio.run(read())
    if session.as_json:
        print_json(report)
    else:
        _print_causes(report)
    if not report.is_good:
        raise typer.Exit(1)


def _print_server(each: ServerState, place: str = "") -> None:
    state = "answers" if each.answers else f"away: {each.error}"
    _line(f"{_NOUNS[each.server]}{place}", state, good=each.answers)


def _print_ledger(report: StatusReport, target: Target) -> None:
    """Print what the ledger has, which does not wait for Temporal."""
    _print_server(report.servers[0], f" {place_of(target.database_url)}")
    if report.at is None:
        return
    if any(not each.current and each.closed_at is None for each in report.bindings):
        for binding in report.bindings:
            _line("moving", binding_text(binding), good=True)
    living = sum(each.state == "alive" for each in report.workers)
    silent = len(report.workers) - living
    said = f"{living} alive" + (f", {silent} silent" if silent else "")
    said += ": start one (`sched worker`)" if report.unserved else ""
    # One that was silent for long, and is replaced, is no condition.
    vanished = any(each.code is Code.REPLICA_VANISHED for each in report.conditions)
    _line("workers", said, good=not (report.unserved or vanished))
    late = relative(report.at - report.lag, report.at).removesuffix(" ago")
    _line("lag", late if report.lag else "none", good=not report.overdue)
    if report.totals is not None:
        queued, pending, running, dead, _ = report.totals
        _line("windows", f"{_many(queued)} queued, {_many(pending)} to be started", good=True)
        stuck = f"{_many(running)} open, {len(report.stuck):,} stuck or failing"
        _line("runs", stuck, good=not report.stuck)
        _line("dead letters", _many(dead), good=not dead)


def _print_causes(report: StatusReport) -> None:
    """Print whether Temporal answers, and what is wrong: its outage is the cause of much else."""
    _print_server(report.servers[-1])
    for heading, lines in _sections(report):
        _section(heading, lines)


def _sections(report: StatusReport) -> Iterator[tuple[str, Sequence[str]]]:
    yield "not fired", [each.text for each in report.overdue]
    yield "wrong", [f"{each.code}: {each.text}" for each in report.others]
    yield "stuck or failing runs", list(map(_stuck, report.stuck))
    alerts = report.unconfirmed
    yield (
        "open alerts",
        [f"{instant_text(each.opened_at)}  {each.code}: {each.text}" for each in alerts],
    )


def _stuck(fire: Fire) -> str:
    return f"{fire.workflow_id}: {'; '.join(map(str, fire.failing))}"


def _many(number: int) -> str:
    return f"{number:,}{' or more' if number >= MOST_COUNTED else ''}"


def _line(name: str, text: str, *, good: bool) -> None:
    _hanging(f"{name:<28}  {text}", " " * 30, style="" if good else "red")


def _hanging(text: str, indent: str, *, style: str = "") -> None:
    """Print a line; on a terminal it is wrapped, and what follows is indented."""
    out = console()
    if sys.stdout.isatty():
        text = textwrap.fill(
            text,
            max(out.width, len(indent) + _LEAST),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
        )
    out.print(text, style=style)


def _section(heading: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    out = console()
    out.print(f"\n{heading}", style="bold")
    for line in lines[:_SHOWN]:
        _hanging(f"  {line}", "    ")
    if len(lines) > _SHOWN:
        out.print(f"  and {len(lines) - _SHOWN} more; --json has all")


# --- doctor ---

_SIGNS = {True: ("ok", "green"), False: ("wrong", "red"), None: ("?", "yellow")}


class Examination(Reading):
    """One call of ``sched doctor``, which leaves what it finds as it is."""

    migrates = False


@command(commands, of=Examination)
def doctor(
    session: Session, schedules: Schedules = DEFAULT_FILE, setup: SetupFunction = None
) -> None:
    """Examine the installation: each line is good, or has a hint.

    PostgreSQL's version, role, connections and migrations, the clocks, the namespace with its
    retention and search attributes, task queues and who polls them, zone rules, webhooks, and the
    schedule file against the ledger. Ends with 1 when something is wrong or could not be asked.
    """
    # The import of Temporal's SDK takes longer than most commands.
    from engine.cli.temporal import temporal_facts
    from engine.runtime import Setup

    options, file = Setup.load(setup), _file_at(schedules)

    async def facts(task_queues: Sequence[str]) -> TemporalFacts | str:
        try:
            return await temporal_facts(session.target, options, task_queues)
        except TemporalUnavailable as error:
            return str(error)

    async def examine(opened: ScheduleService) -> list[Finding]:
        temporal = await facts(await opened.task_queues())
        found = await opened.examine(
            temporal, clock=lambda: datetime.now(UTC), own_attribute=KEY_ATTRIBUTE
        )
        return [*found, await _of_file(opened, schedules, file)]

    try:
        found = session.ask(examine)
    except LedgerError as error:
        temporal = asyncio.run(facts(()))
        part = "postgresql" if isinstance(error, LedgerUnavailable) else "migrations"
        found = [
            Finding(part, False, error.message, error.hint),
            Finding(
                "temporal", *((None, temporal) if isinstance(temporal, str) else (True, "answers"))
            ),
        ]
    good = all(each.good for each in found)
    session.print(answers.FINDINGS(good=good, findings=found), ())
    if not session.as_json:
        _print_findings(found)
    if not good:
        raise typer.Exit(1)


def _file_at(path: Path) -> ScheduleFile | Finding:
    """Return the schedule file; a finding if there is none, or it cannot be read."""
    if not path.exists():
        return Finding("file", True, f"no {path} here: the ledger has every definition")
    try:
        return ScheduleService.check(path)
    except EngineError as error:
        return Finding("file", False, str(error), f"`sched check {path}`")


async def _of_file(opened: ScheduleService, path: Path, file: ScheduleFile | Finding) -> Finding:
    """Return how the schedule file differs from the ledger."""
    if isinstance(file, Finding):
        return file
    try:
        found = await opened.plan(file)
    except EngineError as error:
        return Finding("file", False, error.message, error.hint)
    if found.refused is not None:
        return Finding("file", False, f"{path} cannot be applied: {found.refused.message}")
    if changes := len(found.changes):
        differ = "1 schedule differs" if changes == 1 else f"{changes} schedules differ"
        hint = f"`sched plan {path}` shows what an apply would change"
        return Finding("file", False, f"{differ} from the ledger's", hint)
    return Finding("file", True, f"{path} is what the ledger has")


def _print_findings(found: Sequence[Finding]) -> None:
    width = max(len(each.name) for each in found)
    indent = f"{'':<5}  {'':<{width}}  "
    for each in found:
        word, colour = _SIGNS[each.good]
        line = f"{word:<5}  {each.name:<{width}}  {each.text}"
        _hanging(line, indent, style="" if each.good else colour)
        if each.hint is not None:
            _hanging(f"{indent}{each.hint}", indent)


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds():.1f} s"
