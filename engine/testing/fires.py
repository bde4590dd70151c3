"""The window that a schedule would hand to a run."""

from __future__ import annotations

from datetime import datetime

from engine.flow.fire import FireInfo, Timing
from engine.testing.clock import instant

_MILLISECOND = 1000


def fire_for(
    key: str,
    fire_time: datetime | str,
    *,
    bucket: int | None = None,
    timezone: str = "UTC",
    timing: Timing = "on_time",
    project: str = "default",
    missed: int = 0,
    data_from: datetime | str | None = None,
) -> FireInfo:
    """Return a window for a test: what ``ctx.fire`` is in a run that is given it.

    Args:
        key: of the schedule.
        fire_time: when the window opened; aware, or ISO 8601 text with an offset.
        bucket: its number; by default that of a cron schedule, the fire time in milliseconds.
        timezone: the schedule's zone.
        timing: how the run came to be.
        project: who owns the schedule.
        missed: how many further windows a caught-up run stands for.
        data_from: where its data begins; see ``FireInfo``.

    Raises:
        ValueError: a moment has no timezone, or ``timing`` is no such word.
    """
    moment = instant(fire_time)
    return FireInfo(
        key=key,
        series=1,
        bucket=int(moment.timestamp() * _MILLISECOND) if bucket is None else bucket,
        fire_time=moment,
        timezone=timezone,
        timing=timing,
        definition_version=1,
        project=project,
        ledger="test",
        token="test",  # noqa: S106 - a claim's number, not a secret
        missed=missed,
        data_from=None if data_from is None else instant(data_from),
    )
