"""Lightweight public API of sched-engine.

Workflow code imports this module, and Temporal's sandbox imports it again for every run, so it
loads only ``engine.errors``, ``engine.flow`` and temporalio. Schedules, ledger and plugin have
their own packages (``engine.schedules``, ``engine.ledger``, ``engine.runtime``).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.errors import EngineError
    from engine.flow import (
        FOREVER,
        CompensationFailed,
        Context,
        FatalError,
        FireInfo,
        Retry,
        StepInfo,
        Undo,
        as_step,
        at,
        caused_by,
        cron,
        every,
        given,
        resource,
        step,
        step_info,
        undo,
        workflow,
    )

__all__ = [
    "FOREVER",
    "CompensationFailed",
    "Context",
    "EngineError",
    "FatalError",
    "FireInfo",
    "Retry",
    "StepInfo",
    "Undo",
    "__version__",
    "as_step",
    "at",
    "caused_by",
    "cron",
    "every",
    "given",
    "resource",
    "step",
    "step_info",
    "undo",
    "workflow",
]

# A literal, because reading the installed metadata would search the disk in every sandbox.
__version__ = "0.1.0"

if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Imported on first use, so that importing a subpackage alone stays fast.
        from temporalio.workflow import unsafe  # noqa: PLC0415

        # Without the passthrough, the sandbox of a worker without our plugin would reload all of
        # this for every run, at ten times the cost of its other work. So nothing in these modules
        # may differ between runs. All names are bound at once: lookups in the sandbox are slow.
        # `from engine import flow` would not ask the sandbox, which then reloads the module.
        with unsafe.imports_passed_through():
            import engine.errors  # noqa: PLC0415
            import engine.flow  # noqa: F401, PLC0415

        errors, flow = sys.modules["engine.errors"], sys.modules["engine.flow"]
        globals().update(
            {
                each: getattr(errors if each == "EngineError" else flow, each)
                for each in __all__
                if each != "__version__"
            }
        )
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
