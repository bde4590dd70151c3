"""Page about one run (its tries, why it failed), and the wait for the end of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import dropwhile

import typer

from engine.cli.output import (
    answers,
    effort_text,
    instant_text,
    key_without_worker,
    print_json,
    took,
    why,
)
from engine.cli.run_names import result_of
from engine.cli.target import Session, Target
from engine.errors import EngineError
from engine.service import (
    OPEN,
    DeadLetter,
    FailureLink,
    Fire,
    Requested,
    RunDetails,
    ScheduleService,
    StepInProgress,
    Try,
)

_STACK = 12
"""Lines of a stack trace that are printed, the innermost ones; ``--json`` has all that is kept."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """Why a run failed, its tries and its undo steps, each the oldest first.

    Attributes:
        undo_steps: the undo steps that ran, from Temporal's history; see ``InTemporal``.
        second_runs: see ``RunDetails``.
        not_asked: why Temporal, which knows more than the ledger, was not asked.
    """

    failure: tuple[FailureLink, ...]
    tried: tuple[Try, ...] = ()
    undo_steps: tuple[dict[str, str], ...] = ()
    steps_in_progress: tuple[StepInProgress, ...] = ()
    second_runs: tuple[str, ...] = ()
    not_asked: str | None = None


class RunReader:
    """Reader of runs: what Temporal has, or else the ledger.

    After one call that Temporal does not answer it is not asked again.

    Args:
        opened: the service on the ledger.
        where: the servers.
    """

    def __init__(self, opened: ScheduleService, where: Target) -> None:
        self._opened, self._where = opened, where
        self._silent: str | None = None

    async def read(self, of: Fire | DeadLetter) -> RunReport:
        """Return a run's failure, tries and undo steps."""
        kept = await self._opened.run_details(of.workflow_id)
        if of.run_id is None:
            return RunReport(kept.failure, kept.tried)
        # Importing the Temporal SDK takes longer than reading the ledger.
        from engine.cli.temporal import InTemporal, run_in_temporal

        found = InTemporal()
        if self._silent is None:
            try:
                found = await run_in_temporal(self._where, of.workflow_id, of.run_id)
            except EngineError as error:
                self._silent = str(error)
        # Temporal may have forgotten the earlier ones.
        tried = max(found.tries, kept.tried, key=len) or _only_try(of)
        second = kept.second_runs
        return RunReport(kept.failure, tried, found.undo, found.running, second, self._silent)


def _only_try(of: Fire | DeadLetter) -> tuple[Try, ...]:
    """Return the last try as the columns of the fire have it."""
    if of.run_id is None or of.started_at is None:
        return ()
    closed_at = of.died_at if isinstance(of, DeadLetter) else of.closed_at
    return (
        Try(
            number=of.tries or 1,
            run_id=of.run_id,
            started_at=of.started_at,
            closed_at=closed_at,
            error=of.error,
        ),
    )


def effort_line(of: Fire | DeadLetter) -> str:
    """Return how long a run took, with its tries and the retries of its steps; empty if unknown."""
    return ", ".join(filter(None, (took(of.duration_ms), effort_text(of.tries, of.step_retries))))


def labelled(facts: Mapping[str, object]) -> list[str]:
    """Return a line for each fact that is known, by its label."""
    return [f"{label:<10} {text}" for label, text in facts.items() if text]


def details_lines(of: RunReport) -> list[str]:
    """Return the tries, the failure and the undo steps of a run as text lines."""
    lines = []
    for each in of.tried:
        end = f"to {instant_text(each.closed_at)}" if each.closed_at else "is open"
        told = f": {each.error}" if each.error else ""
        lines.append(f"try {each.number:<6} {instant_text(each.started_at)} {end}{told}")
    for number, link in enumerate(of.failure):
        lines += _link_lines("error" if number == 0 else "caused by", link)
    lines += [
        f"undo       {each['step']} of {each['undoes']}: {each['state']}" for each in of.undo_steps
    ]
    lines += [f"in step    {each}" for each in of.steps_in_progress]
    lines += [f"ran twice  run {each} was started under its id" for each in of.second_runs]
    return [*lines, *labelled({"not asked": of.not_asked})]


def _link_lines(label: str, link: FailureLink) -> list[str]:
    """Return one error of a chain, with the end of its stack trace."""
    attempt = f", attempt {link.attempt}" if link.attempt else ""
    place = f" (step {link.step}{attempt})" if link.step else ""
    place += f" (child {link.child})" if link.child else ""
    stack = link.stack.rstrip().splitlines()
    shown = stack[-_STACK:]
    if len(stack) > _STACK:  # from the beginning of a frame on
        shown = list(dropwhile(lambda line: not line.lstrip().startswith("File "), shown)) or shown
    first = f"{label:<10} {link.type}: {link.message}{place}"
    return [first, *(f"{'':<10} {line}" for line in shown)]


# --- end of a run ---
# ``sched trigger --wait``.


def run_to_its_end(
    session: Session,
    request: Callable[[ScheduleService], Awaitable[Requested]],
    *,
    within: timedelta | None,
) -> None:
    """Send a request, wait for the end of its run, and print the result or why there is none.

    The exit code is 1 unless the run was completed. The run goes on when the wait ends.
    """
    requested: list[str] = []

    async def act(opened: ScheduleService) -> tuple[Requested, Fire, RunDetails]:
        asked = await request(opened)
        requested.append(asked.fire.workflow_id)
        typer.echo(f"requested: {requested[0]}; Ctrl-C ends the wait alone", err=True)
        if alone := await key_without_worker(opened, asked.fire.key):
            typer.echo(alone, err=True)
        fire = await opened.ended(requested[0], within=within) or asked.fire
        return asked, fire, await opened.run_details(requested[0])

    try:
        asked, fire, details = session.ask(act)
    except KeyboardInterrupt:
        if requested:
            typer.echo(f"the run goes on: `sched show {requested[0]}`", err=True)
        raise
    completed = fire.status == "completed"
    result = result_of(session, fire.workflow_id) if completed else None
    if session.as_json:
        print_json(answers.ENDED_RUN(replace(asked, fire=fire), details, result=result))
    else:
        lines = [
            _end_of(fire, within),
            *([] if completed else details_lines(RunReport(details.failure))),
        ]
        typer.echo("\n".join(lines))
        if completed:
            print_json(result)
    if not completed:
        raise typer.Exit(1)


def _end_of(fire: Fire, within: timedelta | None) -> str:
    """Return a line on what became of a run that was waited for."""
    if fire.status in OPEN:
        seconds = within.total_seconds() if within else 0
        text = f"{fire.workflow_id} is {fire.status} after {seconds:g} s, and goes on"
        return f"{text}: `sched show {fire.workflow_id}`"
    effort = f", {effort_line(fire)}" if effort_line(fire) else ""
    more = f": {why(fire)}" if why(fire) and fire.status != "completed" else ""
    return f"{fire.workflow_id}: {fire.status}{effort}{more}"
