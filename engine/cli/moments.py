"""How a command is told an instant: one reader, and one sentence for each way to miss."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, time

import typer

from engine.schedules.instants import EARLIEST, FIRST_YEAR, HORIZON, LAST_YEAR, from_seconds
from engine.schedules.zones import zone

_FIRST, _END = from_seconds(EARLIEST), from_seconds(HORIZON)


def moment(text: str, option: str, *, timezone: str | None = None) -> datetime:
    """Return the instant that ``option`` was given, in UTC.

    A date alone is its midnight, in UTC without ``timezone``. With it a time without an offset
    is that clock's too: where the clock repeats it, the first of the two.

    Raises:
        typer.BadParameter: it is no ISO date and time, the time has neither offset nor
            ``timezone``, or it lies where nothing ever fires: before 1970 or behind 2100.
        TimezoneInvalid: when ``timezone`` is no zone.
    """
    hint = f"'{option}'"
    try:
        read = _midnight(text, timezone or "UTC") if is_date(text) else datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no moment; write 2026-11-22T02:00:00Z, or a date as 2026-11-22",
            param_hint=hint,
        ) from None
    if read.tzinfo is None and timezone is not None:
        read = read.replace(tzinfo=zone(timezone).tzinfo)
    if read.tzinfo is None:
        raise typer.BadParameter(
            f"{text!r} has no offset; append Z for UTC, or an offset as -03:00", param_hint=hint
        )
    if not _FIRST <= read <= _END:
        raise typer.BadParameter(
            f"{text!r} is outside of the time in which anything fires; write a moment of the"
            f" years {FIRST_YEAR} to {LAST_YEAR}",
            param_hint=hint,
        )
    return read.astimezone(UTC)


def is_date(text: str) -> bool:
    """Whether it is a date without a time."""
    with contextlib.suppress(ValueError):
        date.fromisoformat(text)
        return True
    return False


def _midnight(text: str, timezone: str) -> datetime:
    return datetime.combine(date.fromisoformat(text), time(), zone(timezone).tzinfo)
