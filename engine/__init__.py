"""The light public door of sched-engine.

Workflow code imports this module, and Temporal's sandbox imports it again for every run: it
pulls in ``engine.errors``, ``engine.flow`` and temporalio, and nothing else. Schedules, ledger
and plugin have doors of their own (``engine.schedules``, ``engine.runtime``).
"""

from __future__ import annotations

from temporalio.workflow import unsafe

# Under a worker without our plugin the sandbox would load all of it again for every run, ten
# times the cost of everything else it does; nothing in there may differ from run to run.
with unsafe.imports_passed_through():
    from engine.errors import EngineError
    from engine.flow import Context, FireInfo, Retry, step, workflow

__all__ = ["Context", "EngineError", "FireInfo", "Retry", "__version__", "step", "workflow"]

# A literal: reading the installed metadata would search the disk in every sandbox.
__version__ = "0.1.0"
