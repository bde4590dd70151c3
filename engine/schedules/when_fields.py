"""The fields that shape when a schedule fires, beside ``everyMs``, ``cron`` and ``at`` themselves.

As in `fields`, every check raises one of our codes with message and cure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from engine.errors import ScheduleError
from engine.schedules.cron_clock import STANDARD, Dst, dst_policy
from engine.schedules.exclusions import (
    MAX_DAYS,
    MAX_ITEMS,
    Calendar,
    check_item,
    days_covered,
)
from engine.schedules.fields import MAX_SHOWN, refuse, shorten, show, text_check
from engine.schedules.instants import FIRST_YEAR, LAST_YEAR

_EXAMPLE: Final = "[SAT, SUN, 2026-12-25]"
_MAX_EXPECTED: Final = 1000
_TIME: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?", re.ASCII)


def _dst(value: Any) -> Any:
    try:
        policy = dst_policy(value)
    except ScheduleError as error:
        raise refuse(shorten(error.message, 2 * MAX_SHOWN), error.cure or "") from None
    return "standard" if policy == STANDARD else policy


def _excluded(value: Any) -> Any:
    if isinstance(value, str):
        _check(value)
        return value.upper() if value.isalpha() else value
    if isinstance(value, dict) and value.keys() == {"name", "dates"}:
        return calendar_of(str(value["name"]), value["dates"])
    if isinstance(value, Calendar):
        return value
    raise refuse(f"exclude holds {show(value)}", f"write texts, for example {_EXAMPLE}")


def calendar_of(name: str, dates: Any) -> Calendar:
    """Return a calendar of checked items.

    Raises:
        PydanticCustomError: one of them is no item, with our code, message and cure.
    """
    if isinstance(dates, str) and dates.lower().endswith(".ics"):
        raise refuse(
            f"calendar {shorten(name)} is {show(dates)}", f"write {{ics: {shorten(dates)}}}"
        )
    if not isinstance(dates, list | tuple) or not all(isinstance(text, str) for text in dates):
        raise refuse(
            f"calendar {shorten(name)} is {show(dates)}", f"write a list, for example {_EXAMPLE}"
        )
    if len(dates) > MAX_ITEMS:
        what = f"calendar {shorten(name)} has {len(dates):,} items"
        raise refuse(what, f"write at most {MAX_ITEMS:,}")
    for text in dates:
        _check(text)
    return Calendar(name, tuple(dates))


def _check(text: str) -> None:
    try:
        check_item(text)
    except ValueError as error:
        message, cure = error.args
        raise refuse(str(message), str(cure)) from None


def _list(name: str, example: str, most: int) -> BeforeValidator:
    def check(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise refuse(f"{name} is {show(value)}", f"write a list, for example {example}")
        if len(value) > most:
            raise refuse(f"{name} has {len(value):,} items", f"write at most {most:,}")
        return value

    return BeforeValidator(check)


def _day(value: Any) -> str:
    try:
        day = date.fromisoformat(value) if isinstance(value, str) else None
        if day and str(day) == value and FIRST_YEAR <= day.year <= LAST_YEAR:
            return str(day)
    except ValueError:
        pass  # of the right form perhaps, but no such day
    raise refuse(f"on is {show(value)}", "write a day of 1970 to 2100, as 2027-03-14")


def _time(value: Any) -> str:
    if isinstance(value, str) and _TIME.fullmatch(value):
        return value
    if isinstance(value, str) and _TIME.fullmatch(f"0{value}"):
        raise refuse(f"fires holds {show(value)}", f'write "0{value}"')
    raise refuse(f"fires holds {show(value)}", 'write times in quotes, as "03:00" or "03:00:30"')


class Expectation(BaseModel):
    """When a schedule is expected to fire on one day, by its own clock.

    Attributes:
        on: the day, as ``2027-03-14``.
        fires: the times, as ``03:00`` or ``03:00:30``, in their order; a repeated one twice.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    on: Annotated[str, BeforeValidator(_day)]
    fires: Annotated[
        tuple[Annotated[str, BeforeValidator(_time)], ...],
        _list("fires", '["03:00"]', _MAX_EXPECTED),
    ]


def _expectation(value: Any) -> Any:
    if isinstance(value, dict | Expectation):
        return value
    raise refuse(f"expect holds {show(value)}", 'write {on: 2027-03-14, fires: ["03:00"]}')


def _whole(items: tuple[str | Calendar, ...]) -> tuple[str | Calendar, ...]:
    """Refuse what would fill the memory, and what is there twice."""
    kept = tuple(dict.fromkeys(items))
    total = sum(1 if isinstance(item, str) else len(item.dates) for item in kept)
    if total > MAX_ITEMS:
        raise refuse(f"exclude has {total:,} items in all", f"write at most {MAX_ITEMS:,}")
    days = sum(map(days_covered, kept))
    if days > MAX_DAYS:
        what = f"exclude covers {days:,} days in all"
        raise refuse(what, f"write at most {MAX_DAYS:,}, or end the schedule with end: instead")
    return kept


def jsonable(items: Iterable[Any]) -> list[Any]:
    """Return items of ``exclude`` or ``expect`` as JSON has them."""
    return [
        {"name": item.name, "dates": list(item.dates)} if isinstance(item, Calendar)
        else item.model_dump(mode="json") if isinstance(item, Expectation)
        else item
        for item in items
    ]  # fmt: skip


StartText = Annotated[str, text_check("start", "2027-01-01")]
EndText = Annotated[str, text_check("end", "2027-12-31")]
DstPolicy = Annotated[Literal["standard"] | Dst, BeforeValidator(_dst)]
Exclude = Annotated[
    tuple[Annotated[str | Calendar, BeforeValidator(_excluded)], ...],
    _list("exclude", _EXAMPLE, MAX_ITEMS),
    AfterValidator(_whole),
]
Expect = Annotated[
    tuple[Annotated[Expectation, BeforeValidator(_expectation)], ...],
    _list("expect", '[{on: 2027-03-14, fires: ["03:00"]}]', _MAX_EXPECTED),
]
