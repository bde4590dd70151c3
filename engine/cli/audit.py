"""Commands audit and explain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import typer

from engine.cli.output import counted, instant_text, print_json, print_table
from engine.cli.run_names import workflow_id
from engine.cli.target import (
    AnyKey,
    OfProject,
    Reading,
    RunName,
    Session,
    SetupFunction,
    command,
    moment,
    one_of,
)
from engine.schedules import first_of
from engine.service import AuditReport, Explanation, KeyAudit, ScheduleService

commands = typer.Typer(rich_markup_mode=None)


# --- audit ---
# ``sched audit``: a verdict on each schedule.

_SHOWN = 20
"""Most faults of one schedule in the text; ``--json`` has a hundred."""
_NAMED = 10
"""Most keys that the ledger does not have in the text; ``--json`` has all."""

Against = Literal["temporal"]


@command(commands, of=Reading)
def audit(
    session: Session,
    key: AnyKey = None,
    since: Annotated[
        str,
        typer.Option("--since", metavar="TIME", help="The first fire time, or its age as 7d."),
    ] = "24h",
    against: Annotated[
        Against | None,
        typer.Option(
            "--against",
            metavar="temporal",
            help="Also compare with the runs that Temporal has.",
            parser=one_of("server", ("temporal",)),
        ),
    ] = None,
    project: OfProject = None,
    setup: SetupFunction = None,
) -> None:
    """Check that the ledger has exactly the windows that every schedule owed.

    The windows are derived again, from the stored definitions and the recorded actions, by code
    that the engine does not use. Each needs exactly one row, of a class that its schedule allows.
    The exit code is 1 unless every schedule is complete, and with --against also if Temporal does
    not answer, or has runs of schedules that the ledger does not have. `sched docs audit` explains
    the verdicts.
    """
    begin = moment(since, "--since", bare="ago")

    async def read(opened: ScheduleService) -> AuditReport:
        runs = None
        if against is not None:
            # Only this needs Temporal's SDK, whose import takes longer than most commands.
            from engine.audit.visibility import TemporalRuns
            from engine.cli.temporal import if_connected
            from engine.runtime import Setup

            client = await if_connected(session.target, Setup.load(setup), "runs are not compared")
            runs = TemporalRuns(client) if client else None
        return await opened.audit(begin, key=key, project=project, runs=runs)

    report = session.ask(read)
    if session.as_json:
        print_json(report)
    else:
        _print(report)
    not_compared = against is not None and not report.against_temporal
    raise typer.Exit(1 if not_compared or not report.is_clean else 0)


def _print(report: AuditReport) -> None:
    ordered = sorted(report.schedules, key=lambda each: (each.verdict == "complete", each.key))
    print_table(
        ("KEY", "VERDICT", "WINDOWS", "BECAME", "PROJECT"),
        ((each.key, each.verdict, each.expected, _became(each), each.project) for each in ordered),
        spare=("PROJECT",),
    )
    for line in (*_faults(ordered), *_remarks(report, ordered)):
        typer.echo(line)


def _became(audit: KeyAudit) -> str:
    parts = [f"{count:,} {status}" for status, count in audit.statuses.items()]
    parts += [f"{audit.due:,} due now"] if audit.due else []
    parts += [f"{audit.held:,} held"] if audit.held else []
    parts += [f"{audit.outside:,} no longer kept"] if audit.outside else []
    return ", ".join(parts)


def _faults(audits: Iterable[KeyAudit]) -> Iterator[str]:
    for audit in audits:
        for fault in audit.faults[:_SHOWN]:
            more = f" (and {fault.windows - 1:,} after it)" if fault.windows > 1 else ""
            at = instant_text(fault.fire_time)
            yield f"{audit.key}  {fault.kind}  {at}{more}: {fault.what}"
        if len(audit.faults) > _SHOWN:
            yield f"{audit.key}  and more: --json names {len(audit.faults)}"


def _remarks(report: AuditReport, audits: Iterable[KeyAudit]) -> Iterator[str]:
    with_temporal = " and Temporal" if report.against_temporal else ""
    verdicts = ", ".join(f"{count:,} {word}" for word, count in sorted(report.verdict.items()))
    windows = sum(each.expected for each in report.schedules)
    yield (
        f"{counted(windows, 'window')} from {instant_text(report.since)}"
        f" to {instant_text(report.until)},"
        f" against the ledger{with_temporal}: {verdicts or 'no schedule'}"
    )
    if report.unknown:
        runs = counted(sum(report.unknown.values()), "run")
        of = first_of([*report.unknown], _NAMED)
        yield f"{runs} in Temporal, of schedules that the ledger does not have: {of}"
    yield from (f"note: {note}" for note in report.notes)
    for audit in audits:
        yield from (f"note: {audit.key}: {note}" for note in audit.notes)
        if audit.outside:
            text = f"{counted(audit.outside, 'window')} may have left the ledger: see the archive"
            yield f"note: {audit.key}: {text}"
        if audit.unchecked:
            text = f"{counted(audit.unchecked, 'run')} may have left Temporal by its retention"
            yield f"note: {audit.key}: {text}"


# --- explain ---
# ``sched explain``: one window in one paragraph.


@command(commands, of=Reading)
def explain(
    session: Session,
    name: RunName,
    time: Annotated[
        str | None,
        typer.Argument(metavar="TIME", help="When the window opens, as `sched next` shows it."),
    ] = None,
) -> None:
    """Explain what was decided about one window, and why.

    The planner decides again, with the inputs that the ledger keeps. The exit code is 1 if the
    window is missing, or if the planner decides differently now.
    """
    at = None if time is None else moment(time, "TIME", bare="ago")
    name = workflow_id(session, name)

    async def read(opened: ScheduleService) -> Explanation:
        if at is not None and ":" not in name:  # also where no window opens
            return await opened.explain(name, at)
        window = await opened.window(name, at=at)
        return await opened.explain(window.key, window.at)

    found = session.ask(read)
    session.print(found, found.text)
    raise typer.Exit(1 if found.is_fault else 0)
