"""Outcomes of applying a file, at replica start and on each save: refusals and remarks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from engine.errors import (
    Code,
    DefinitionUnreadable,
    InputsSealed,
    KeyForeign,
    LedgerRequired,
    Problem,
    RevisionTooLow,
    ScheduleFileError,
)
from engine.flow import registered_workflows
from engine.runtime.apply.code_check import mismatches
from engine.runtime.apply.edits import ApplyReport
from engine.runtime.apply.source import Source, locate, located_remarks
from engine.runtime.events import Notice, OnEvent
from engine.schedules import ScheduleFile

REFUSALS: Final = (
    ScheduleFileError,
    KeyForeign,
    RevisionTooLow,
    DefinitionUnreadable,
    InputsSealed,
    LedgerRequired,
)
"""Errors caused by the file; the last good definitions stay in force."""


NAMED: Final = 12
"""Maximum number of lines listed; a file may have thousands of keys."""


def require_project(file: ScheduleFile, project: str) -> None:
    """Refuse a file whose project is not, or no longer, the one that this replica serves.

    Raises:
        KeyForeign: this replica would never claim the file's schedules.
    """
    if file.project != project:
        raise KeyForeign(
            f"{file.name} is of project {file.project}, this worker serves {project}",
            hint="start `sched up` or the worker again, or correct project:",
        )


async def apply_source(
    file: ScheduleFile,
    apply: Callable[[ScheduleFile], Awaitable[ApplyReport]],
    on_applied: Callable[[ScheduleFile, ApplyReport], None],
    *,
    project: str,
    source: Source | ScheduleFile,
    types: frozenset[str],
    on_event: OnEvent,
) -> None:
    """Apply a file that was read, and emit the notices about it.

    Args:
        file: the file.
        apply: applies it.
        on_applied: called before the notices.
        project: the project that this replica serves.
        source: the source of the file.
        types: the workflows that this worker runs.
        on_event: receives the notices.

    Raises:
        EngineError: one of ``REFUSALS``; the last good definitions stay in force.
    """
    require_project(file, project)
    report = await apply(file)
    on_applied(file, report)
    for notice in await asyncio.to_thread(remarks, file, report, source, types):
        on_event(notice)


def remarks(
    file: ScheduleFile,
    report: ApplyReport,
    source: Source | ScheduleFile | None = None,
    types: frozenset[str] = frozenset(),
) -> list[Notice]:
    """Return the notices about an applied file. Blocks: call it from a thread.

    Args:
        file: the applied file.
        report: the result of the apply.
        source: the source of the file, used to find line numbers.
        types: the workflows that this worker runs; their inputs are compared with the file's.
    """
    warnings = [f"warning: {problem.located(file.name)}" for problem in file.warnings]
    return [
        *(
            Notice(line, good=True)
            for line in [*_news(file, report), *report.queues, *report.hooks, *warnings]
        ),
        *(Notice(remark, good=False) for remark in located_remarks(report, source)),
        *(
            Notice(each.located(file.name), good=False)
            for each in wrong_inputs(file, source, types)
        ),
    ]


def wrong_inputs(
    file: ScheduleFile, source: Source | ScheduleFile | None, types: frozenset[str]
) -> list[Problem]:
    """Return the inputs of a file that do not fit the workflows of these Temporal types."""
    code = {name: each for name, each in registered_workflows().items() if name in types}
    found = [each for each in mismatches(file.schedules, code) if each.code == Code.INPUT_INVALID]
    return locate(found, source)


def named(lines: list[str]) -> list[str]:
    """Return the first lines, and the number of the remaining ones."""
    more = [f"  and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    return [*lines[:NAMED], *more]


def _news(file: ScheduleFile, report: ApplyReport) -> list[str]:
    """Return the differences from the ledger, one line per key for the first keys."""
    if not (
        report.renamed or report.changed or report.returned or report.unchanged or report.absent
    ):
        return []  # the whole file is new
    new = {schedule.key: schedule for schedule in file.schedules}
    lines = [f"+ {key}: {new[key].workflow}, {new[key].when}" for key in report.added]
    lines += [f"~ {key} was {was}" for key, was in report.renamed.items()]
    lines += [f"+ {key} is back: {new[key].when}" for key in report.returned]
    lines += [f"~ {key}: {', '.join(edits)}" for key, edits in report.edits.items()]
    return named(lines)
