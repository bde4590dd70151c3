"""Service layer: the operations of operators and applications, used by the command line.

===============  =========================================================
base.py          Base of the service: reads of the ledger, and request ids
service.py       The service: all operations of operators and applications
pausing.py       Pause, resume, skip and unskip
runs.py          Trigger, rerun and cancel
backfill.py      Backfill of past windows
one_shots.py     Schedules declared by applications at run time
dead_letters.py  Operations on dead letters
===============  =========================================================
"""

from __future__ import annotations

from engine.service.base import not_found
from engine.service.one_shots import as_text
from engine.service.service import ScheduleService

__all__ = ["ScheduleService", "as_text", "not_found"]
