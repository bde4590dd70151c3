"""What docs/retention.md promises of each row, said without the janitor's code."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

Row = dict[str, Any]
OPEN = {"claimed", "queued", "starting", "started"}
FAILED = {"failed", "timed_out", "terminated", "rejected", "unvouched"}
WELL, BADLY, AT_ALL = timedelta(days=90), timedelta(days=365), timedelta(days=730)


@dataclass(frozen=True, slots=True)
class Law:
    """How the rows of one schedule are to be kept.

    Attributes:
        keep: so many of the newest keep their details.
        once: a single moment, which is no part of any range.
        cursor: windows behind it, in the present series, have not come yet.
    """

    key: str
    keep: int
    once: bool
    series: int
    cursor: datetime


def rested(row: Row) -> datetime:
    """Since when nothing has happened to a row."""
    last: datetime = max(row["last_fire_time"], row["decided_at"])
    return max(last, row["closed_at"] or last)


def may_change(row: Row, law: Law) -> bool:
    """Whether it has a verdict, and lies behind its schedule."""
    to_come = row["series"] == law.series and row["last_fire_time"] > law.cursor
    return row["status"] not in OPEN and not to_come


def newest(rows: list[Row], count: int) -> set[int]:
    """The ids that may be among so many newest rows: those of the last moment all may."""
    times = sorted((row["fire_time"] for row in rows), reverse=True)
    edge = times[min(count, len(times)) - 1] if times else None
    return {row["id"] for row in rows if edge is not None and row["fire_time"] >= edge}


def must_stay(row: Row, rows: list[Row], law: Law, today: datetime) -> bool:
    """Whether its window must still be in the ledger, by itself or in a range."""
    if not may_change(row, law) or (not law.once and row["id"] in newest(rows, 1)):
        return True
    alone = law.once or row["kind"] != "window"
    age = (BADLY if row["status"] in FAILED else WELL) if alone else AT_ALL
    return rested(row) >= today - age


def must_keep_details(row: Row, rows: list[Row], law: Law, today: datetime) -> bool:
    """Whether the row must be in the ledger exactly as it was."""
    if must_stay(row, rows, law, today):
        if not may_change(row, law) or law.once or row["kind"] != "window":
            return True
        if row["status"] == "unvouched" or row["missed"]:
            return True
        age = BADLY if row["status"] in FAILED else WELL
        return rested(row) >= today - age or row["id"] in newest(rows, law.keep)
    young = rested(row) >= today - AT_ALL
    return young and not law.once and row["id"] in newest(rows, law.keep)


def must_leave(row: Row, rows: list[Row], law: Law, today: datetime) -> bool:
    """Whether its row must have gone."""
    if must_stay(row, rows, law, today):
        return False
    beyond = law.once or row["id"] not in newest(rows, law.keep)
    return beyond or rested(row) < today - AT_ALL


def by_day(rows: list[Row]) -> Counter[tuple[str, date, str]]:
    """Windows and manual runs by key, day and class; those of a rerun have counted."""
    found: Counter[tuple[str, date, str]] = Counter()
    for row in rows:
        if row["kind"] != "rerun":
            status = "open" if row["status"] in OPEN else row["status"]
            found[row["key"], row["fire_time"].date(), status] += row["windows"]
    return found
