"""The verbs of operators and applications. The command line is a thin door over them.

===============  ==============================================================
service.py       ``ScheduleService``: all of them, and the ledger they work on
reading.py       what is known of schedules and fires
declaring.py     a file: check, plan, apply, prune
asking.py        schedules of an application, without a file
holding.py       pause and resume, skip and unskip
running.py       trigger, rerun, backfill, cancel
dead_letters.py  what ended badly
===============  ==============================================================
"""

from __future__ import annotations

from engine.service.asking import as_text
from engine.service.reading import not_found
from engine.service.service import ScheduleService

__all__ = ["ScheduleService", "as_text", "not_found"]
