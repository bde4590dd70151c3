"""Attempts to apply a file: refusals, and remarks on the code that is to run it.

What an attempt to apply a file may come to: for the replica's start, and for each save.
"""

from __future__ import annotations

from typing import Final

from engine.errors import (
    Code,
    DefinitionUnreadable,
    KeyForeign,
    LedgerRequired,
    Problem,
    RevisionTooLow,
    ScheduleFileError,
)
from engine.flow import registered_workflows
from engine.runtime.apply.code_check import mismatches
from engine.runtime.apply.edits import ApplyReport
from engine.runtime.apply.locations import located, placed
from engine.runtime.apply.source import Source
from engine.runtime.events import Notice
from engine.schedules import ScheduleFile

REFUSALS: Final = (
    ScheduleFileError,
    KeyForeign,
    RevisionTooLow,
    DefinitionUnreadable,
    LedgerRequired,
)
"""The file is at fault, and the last good definitions go on."""


NAMED: Final = 12
"""So many keys are named; a file may have thousands."""


def require_project(file: ScheduleFile, project: str) -> None:
    """Refuse a file whose project is not, or no longer, the one that this replica serves.

    Raises:
        KeyForeign: applied, its schedules would be nobody's to claim here.
    """
    if file.project != project:
        raise KeyForeign(
            f"{file.name} is of project {file.project}, this worker serves {project}",
            cure="start `sched up` or the worker again, or correct project:",
        )


def remarks(
    file: ScheduleFile,
    report: ApplyReport,
    source: Source | ScheduleFile | None = None,
    types: frozenset[str] = frozenset(),
) -> list[Notice]:
    """Return what somebody should hear of a file that was applied. Call it from a thread.

    Args:
        file: what was applied.
        report: what that did.
        source: where it came from, so that lines can be named.
        types: the workflows that this worker runs, whose inputs are compared with the file's.
    """
    warnings = [f"warning: {problem.located(file.name)}" for problem in file.warnings]
    return [
        *(Notice(line, good=True) for line in [*_news(file, report), *report.queues, *warnings]),
        *(Notice(remark, good=False) for remark in located(report, source)),
        *(
            Notice(each.located(file.name), good=False)
            for each in wrong_inputs(file, source, types)
        ),
    ]


def wrong_inputs(
    file: ScheduleFile, source: Source | ScheduleFile | None, types: frozenset[str]
) -> list[Problem]:
    """Return where the inputs of a file do not fit the workflows of these Temporal types."""
    code = {name: each for name, each in registered_workflows().items() if name in types}
    found = [
        misfit for misfit in mismatches(file.schedules, code) if misfit.code == Code.INPUT_INVALID
    ]
    return placed(found, source)


def named(lines: list[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    more = [f"  and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    return [*lines[:NAMED], *more]


def _news(file: ScheduleFile, report: ApplyReport) -> list[str]:
    """Return the differences from the ledger, a line for each of the first keys."""
    if not (report.changed or report.returned or report.unchanged or report.absent):
        return []  # the whole file is new
    new = {schedule.key: schedule for schedule in file.schedules}
    lines = [f"+ {key}: {new[key].workflow}, {new[key].when}" for key in report.added]
    lines += [f"+ {key} is back: {new[key].when}" for key in report.returned]
    lines += [f"~ {key}: {', '.join(edits)}" for key, edits in report.edits.items()]
    return named(lines)
