"""How moments are written for people. Pure: now is an argument."""

from __future__ import annotations

from datetime import datetime, timedelta

from engine.schedules.zones import zone

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def local(moment: datetime, timezone: str) -> datetime:
    """Return the moment on the clock of this IANA zone, by the pinned zone rules."""
    return moment.astimezone(zone(timezone).tzinfo)


def clock(moment: datetime, timezone: str, *, seconds: bool = False) -> str:
    """Return ``2026-11-22 02:00 -03``; the offset tells the two of a repeated hour apart.

    Whole minutes are written without seconds, unless ``seconds`` asks for them.
    """
    shown = local(moment, timezone)
    text = f"{shown:%Y-%m-%d %H:%M}"
    if seconds or shown.second or shown.microsecond:
        text += f":{shown:%S}"
    if shown.microsecond:
        text += f".{shown.microsecond // 1000:03}"
    return f"{text} {_offset(shown)}"


def _offset(shown: datetime) -> str:
    if getattr(shown.tzinfo, "key", "") == "UTC":
        return "UTC"
    seconds = round((shown.utcoffset() or timedelta()).total_seconds())
    minutes, rest = divmod(abs(seconds), 60)
    parts = [minutes // 60, minutes % 60, rest]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return ("-" if seconds < 0 else "+") + ":".join(f"{part:02}" for part in parts)


def relative(moment: datetime, now: datetime) -> str:
    """Return ``in 3 h 12 min`` or ``7 s ago``: the two largest units."""
    length = moment - now
    rest = abs(length) // timedelta(seconds=1)
    if rest == 0:
        return "now"
    parts: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append((count, unit))
    words = " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)
    return f"in {words}" if length > timedelta() else f"{words} ago"
