"""Page about one run: its tries and why it failed, for `sched show --at` and `sched dead show`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import dropwhile

from engine.cli.output import effort_text, fields, instant, took
from engine.cli.target import Target
from engine.errors import EngineError
from engine.service import DeadLetter, FailureLink, Fire, RunDetails, ScheduleService, Try

_STACK = 12
"""Lines of a stack trace that are printed, the innermost ones; ``--json`` has all that is kept."""


async def read_details(opened: ScheduleService, of: Fire | DeadLetter, where: Target) -> RunDetails:
    """Return a run's failure and its tries: those that Temporal has, or else the ledger."""
    kept = await opened.run_details(of.workflow_id)
    if of.run_id is None:
        return kept
    found = await _in_temporal(of.workflow_id, of.run_id, where)
    # Temporal may have forgotten the earlier ones.
    return replace(kept, tried=max(found, kept.tried, key=len) or _only_try(of))


async def _in_temporal(workflow_id: str, run_id: str, where: Target) -> tuple[Try, ...]:
    """Return the tries that Temporal's histories have; none if it does not answer."""
    # Importing the Temporal SDK takes longer than reading the ledger.
    from engine.cli.temporal import tries_of  # noqa: PLC0415

    try:
        return await tries_of(where, workflow_id, run_id)
    except EngineError:
        return ()


def _only_try(of: Fire | DeadLetter) -> tuple[Try, ...]:
    """Return the last try as the columns of the fire have it."""
    if of.run_id is None or of.started_at is None:
        return ()
    closed_at = of.died_at if isinstance(of, DeadLetter) else of.closed_at
    return (
        Try(number=of.tries or 1, run_id=of.run_id, started_at=of.started_at, closed_at=closed_at,
            error=of.error),
    )  # fmt: skip


def details_json(of: RunDetails) -> dict[str, object]:
    """Return the failure and the tries of a run as in ``--json``."""
    return {
        "failure": [link.to_json() for link in of.failure],
        "tried": [fields(each, "number run_id started_at closed_at error") for each in of.tried],
    }


def effort_line(of: Fire | DeadLetter) -> str:
    """Return how long a run took, with its tries and the retries of its steps; empty if unknown."""
    return ", ".join(filter(None, (took(of.duration_ms), effort_text(of.tries, of.step_retries))))


def labelled(facts: Mapping[str, object]) -> list[str]:
    """Return a line for each fact that is known, by its label."""
    return [f"{label:<10} {text}" for label, text in facts.items() if text]


def details_lines(of: RunDetails) -> list[str]:
    """Return the tries and the failure of a run as text lines."""
    lines = []
    for each in of.tried:
        end = f"to {instant(each.closed_at)}" if each.closed_at else "is open"
        told = f": {each.error}" if each.error else ""
        lines.append(f"try {each.number:<6} {instant(each.started_at)} {end}{told}")
    for number, link in enumerate(of.failure):
        lines += _link_lines("error" if number == 0 else "caused by", link)
    return lines


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
