"""What an attempt to apply a file may come to: for the replica's start, and for each save."""

from __future__ import annotations

from typing import Final

from engine.errors import DefinitionUnreadable, KeyForeign, RevisionTooLow, ScheduleFileError
from engine.runtime.declare import ApplyReport
from engine.runtime.events import Remark
from engine.schedules import ScheduleFile

REFUSALS: Final = (ScheduleFileError, KeyForeign, RevisionTooLow, DefinitionUnreadable)
"""The file is at fault, and the last good definitions go on."""


def remarks(file: ScheduleFile, report: ApplyReport) -> list[Remark]:
    """Return what somebody should hear of a file that was applied."""
    warnings = [f"warning: {problem.located(file.name)}" for problem in file.warnings]
    return [
        *(Remark(warning, good=True) for warning in warnings),
        *(Remark(remark, good=False) for remark in report.remarks),
    ]
