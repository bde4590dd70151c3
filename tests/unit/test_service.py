"""What the service says of a key that does not exist."""

from __future__ import annotations

import pytest

from engine.errors import ScheduleNotFound
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.service import ScheduleService, not_found


async def test_one_schedule_is_found_by_its_whole_key_and_a_near_one_is_named(virtual_ledger):
    entries = ", ".join(f"{{key: {key}, workflow: w, everyMs: 1000}}" for key in ("report", "sync"))
    await apply(virtual_ledger, load_schedules(f"schedules: [{entries}]"), by="test")
    service = ScheduleService(virtual_ledger, actor="test")
    assert (await service.schedule("sync")).key == "sync"
    with pytest.raises(ScheduleNotFound, match="there is no schedule repot; did you mean report"):
        await service.schedule("repot")


def test_capitals_are_no_reason_not_to_see_what_was_meant():
    assert str(not_found("REPORT", ["report"])).endswith("did you mean report?")
    assert str(not_found("zzz", ["report"])).endswith("; `sched list` shows every key")
