"""The words a run carries into the Temporal Web UI."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from engine.flow.fire import FireInfo
from engine.ledger.data_gaps import NO_RUN_BEFORE, REPEATS
from engine.ledger.fire_records import Claim, Timing
from engine.schedules.due import FIRST_SIGHT, Due
from engine.schedules.durations import format_duration
from engine.schedules.instants import TICK, from_seconds

_ASKED_FOR: Mapping[str, str] = {
    "manual": "manual: somebody triggered it",
    "backfill": "backfill: its window had no run in its time",
    "rerun": "rerun: one more run of its window",
}
_HANDLER = "handler: an earlier run of its window ended badly"
_BEGINNING = from_seconds(0)


def fire_info(claim: Claim, *, ledger: str, timing: Timing) -> FireInfo:
    """Return what the run is told about its fire."""
    return FireInfo(
        key=claim.key,
        series=claim.series,
        bucket=claim.bucket,
        fire_time=claim.fire_time,
        timezone=claim.schedule.timezone,
        timing=timing,
        definition_version=claim.definition_version,
        project=claim.project,
        ledger=ledger,
        token=str(claim.token),
        missed=claim.missed,
        data_from=_data_from(claim),
    )


def _data_from(claim: Claim) -> datetime | None:
    """Where its data begin: by the ledger, or at the window before, by the definition."""
    if claim.data_from == NO_RUN_BEFORE:
        return None
    if claim.data_from not in {None, REPEATS}:
        return claim.data_from
    until = (claim.missed_from or claim.fire_time) - TICK
    due = Due(claim.schedule, claim.series, until, until)
    return next(iter(due.newest(_BEGINNING, until, 1)), None)


def summary(info: FireInfo) -> str:
    """Return one line: ``cache-sync · 2026-11-21 02:00 America/Sao_Paulo``."""
    return f"{info.key} · {_clock(info.local_time)} {info.timezone}"


def details(claim: Claim, info: FireInfo, lag: timedelta) -> str:
    """Return the Markdown of the run's page: schedule, window, lag, why."""
    schedule = claim.schedule
    window = f"{_clock(info.local_time)} {info.timezone}"
    if info.timezone != "UTC":
        window += f" ({_clock(info.fire_time.astimezone(UTC))} UTC)"
    lines = [
        f"- **Schedule** `{claim.key}`, {schedule.when}",
        f"- **Project** `{claim.project}`, definition {claim.definition_version}",
        f"- **Window** {window}, bucket {claim.bucket}, series {claim.series}",
        f"- **Lag** {lag.total_seconds():.3f} s{_spread(claim)}",
        f"- **Why** {_HANDLER if claim.kind == 'handler' else _why(claim, info.timing)}",
    ]
    if schedule.description:
        lines[:0] = [schedule.description, ""]
    return "\n".join(lines)


def _spread(claim: Claim) -> str:
    delay = claim.schedule.delay(claim.fire_time)
    return f", of which spread {format_duration(delay)}" if delay else ""


def _why(claim: Claim, timing: Timing | str) -> str:
    grace = format_duration(claim.schedule.grace)
    if claim.reason == FIRST_SIGHT:
        return "first sight: the window that was open when the schedule was first seen"
    match timing:
        case "on_time":
            return f"on time: started within its grace of {grace}"
        case "late":
            return f"late: decided in time, started more than {grace} after its fire time"
        case "caught_up" if claim.missed:
            return f"caught up: stands for itself and {claim.missed} missed windows"
        case "caught_up":
            return f"caught up: its fire time was more than {grace} ago"
        case other:
            return _ASKED_FOR.get(other, other)


def _clock(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}" if moment.second else f"{moment:%Y-%m-%d %H:%M}"
