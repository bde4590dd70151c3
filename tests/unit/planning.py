"""Plans of schedules that no ledger has, for the tests of the planner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from engine.schedules.model import Schedule
from engine.schedules.planner.decisions import (
    ALL_READ,
    Known,
    OpenFire,
    Pause,
    Plan,
    ScheduleState,
    Unread,
)
from engine.schedules.planner.planner import plan


def plan_of(
    declared: Schedule,
    *,
    cursor: datetime,
    now: datetime,
    effective_from: datetime | None = None,
    hold_until: datetime | None = None,
    known: Known | None = None,
    open_fires: Sequence[OpenFire] = (),
    unread: Unread = ALL_READ,
    suffixed: bool = False,
    started: int = 0,
    **options: Any,
) -> Plan:
    state = replace(
        ScheduleState.of(declared, cursor, effective_from=effective_from),
        known=known or {}, open_fires=tuple(open_fires), unread=unread, suffixed=suffixed,
        started=started,
        pause=Pause(cursor, until=hold_until) if hold_until else None,
    )  # fmt: skip
    return plan(state, now, **options)
