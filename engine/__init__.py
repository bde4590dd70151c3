"""The light public door of sched-engine.

Workflow code imports this module, and Temporal's sandbox imports it again for every run: it
opens to ``engine.errors``, ``engine.flow`` and temporalio, and to nothing else. Schedules, ledger
and plugin have doors of their own (``engine.schedules``, ``engine.runtime``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.errors import EngineError
    from engine.flow import (
        CompensationFailed,
        Context,
        FatalError,
        FireInfo,
        Retry,
        StepInfo,
        step,
        step_info,
        workflow,
    )

__all__ = [
    "CompensationFailed",
    "Context",
    "EngineError",
    "FatalError",
    "FireInfo",
    "Retry",
    "StepInfo",
    "__version__",
    "step",
    "step_info",
    "workflow",
]

# A literal: reading the installed metadata would search the disk in every sandbox.
__version__ = "0.1.0"

if not TYPE_CHECKING:  # a checker would believe that there is any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Whoever needs none of it waits for none of it.
        from temporalio.workflow import unsafe  # noqa: PLC0415

        # Under a worker without our plugin the sandbox would load all of it again for every run,
        # ten times the cost of everything else it does; nothing in there may differ from run to
        # run. All names at once: in there each look is slow.
        with unsafe.imports_passed_through():
            from engine import errors, flow  # noqa: PLC0415

        globals().update(
            {
                each: getattr(errors if each == "EngineError" else flow, each)
                for each in __all__
                if each != "__version__"
            }
        )
        return globals()[name]
