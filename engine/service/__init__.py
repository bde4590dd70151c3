"""Service layer: the operations of operators and applications, used by the command line.

==========  =====================================================================================
operate.py  Operations on schedules and runs: pause, resume, skip, unskip, trigger, rerun, cancel
==========  =====================================================================================
"""

from __future__ import annotations

from engine.service.base import not_found
from engine.service.one_shots import as_text
from engine.service.service import ScheduleService

__all__ = ["ScheduleService", "as_text", "not_found"]
