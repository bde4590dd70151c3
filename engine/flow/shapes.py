"""What a type checker demands of a workflow class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from engine.flow.context import Context

R_co = TypeVar("R_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class RunsAlone(Protocol[R_co]):
    """A class whose ``run`` can do without an input."""

    async def run(self, ctx: Context, /) -> R_co:
        """See ``workflow``."""


class RunsWithInput(Protocol[T_contra, R_co]):
    """A class whose ``run`` takes an input."""

    async def run(self, ctx: Context, input: T_contra, /) -> R_co:  # noqa: A002 - the word of schedules.yaml
        """See ``workflow``."""


WorkflowClass = TypeVar("WorkflowClass", bound="type[RunsAlone[Any] | RunsWithInput[Any, Any]]")
