"""What ``@workflow`` knows about a class."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from engine.flow.retries import Retry

MARK: Final = "__sched_workflow__"


@dataclass(frozen=True)
class WorkflowDefinition:
    """What ``@workflow`` knows about a class.

    Attributes:
        name: The name schedules use.
        version: Dotted integers.
        cls: The user's class.
        accepts_input: ``run`` has a second parameter.
        requires_input: That parameter has no default.
        input_type: Its annotation, resolved; None where it has none.
        result_type: The annotation of what ``run`` returns, resolved; None where it has none.
        timeout: How long one run may take; None means without end.
        retry: How a failed run is begun again; None means never.
        compensate_on_terminate: What an ended run could not undo itself is undone for it.
    """

    name: str
    version: str
    cls: type
    accepts_input: bool
    requires_input: bool
    input_type: Any = None
    result_type: Any = None
    timeout: timedelta | None = None
    retry: Retry | None = None
    compensate_on_terminate: bool = False

    @property
    def type(self) -> str:
        """The Temporal workflow type."""
        return f"{self.name}@{self.version}"


def definition_of(cls: type) -> WorkflowDefinition | None:
    """Return what ``@workflow`` noted on this very class; None for any other (also a subclass)."""
    found: WorkflowDefinition | None = vars(cls).get(MARK)
    return found
