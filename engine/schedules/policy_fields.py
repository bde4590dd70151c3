"""The fields about runs in the way, missed windows, and old rows: overlap, catch-up, retention."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator

from engine.schedules.decisions import Overlap
from engine.schedules.fields import choice, duration, refuse, show
from engine.schedules.rates import Rate, parse_rate

MOST_QUEUED: Final = 100_000
MOST_OPEN: Final = 10_000
"""Runs of one schedule: a plan reads each of them."""

MOST_CAUGHT_UP: Final = 1500
"""A day of minutes, and what one transaction of the tick can hold."""

MOST_KEPT: Final = 1_000_000

_Policy = Literal["latest", "all", "none"]
_Order = Literal["oldest", "newest"]


def _count(name: str, most: int) -> BeforeValidator:
    def check(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
            return value
        raise refuse(f"{name} is {show(value)}", f"write a whole number from 1 to {most}")

    return BeforeValidator(check)


def _rate(value: Any) -> Rate | None:
    if value is None or isinstance(value, Rate):
        return value
    try:
        return parse_rate(value if isinstance(value, str) else "")
    except ValueError as error:
        raise refuse(f"catchUp.rate is {show(value)}", str(error)) from None


def _optional(check: BeforeValidator) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value is None else check.func(value))  # type: ignore[call-arg]  # ours takes the value alone


def _retention(value: Any) -> Any:
    if isinstance(value, str | int | float | list) or value is None:
        raise refuse(f"retention is {show(value)}", "write {keep: 1000, age: 90d}")
    return value


def _catch_up(value: Any) -> Any:
    if isinstance(value, str | int | float | list) or value is None:
        policy = value if value in get_args(_Policy) else "latest"
        raise refuse(f"catchUp is {show(value)}", f"write {{policy: {policy}, window: 24h}}")
    return value


OverlapPolicy = Annotated[Overlap, choice("overlap", get_args(Overlap))]
MaxQueued = Annotated[int, _count("maxQueued", MOST_QUEUED)]
MaxConcurrentRuns = Annotated[int, _count("maxConcurrentRuns", MOST_OPEN)]
CancelGrace = Annotated[timedelta, duration("cancelGrace")]

IsCatchUp = BeforeValidator(_catch_up)
Policy = Annotated[_Policy, choice("catchUp.policy", get_args(_Policy))]
Window = Annotated[timedelta, duration("catchUp.window")]
Max = Annotated[int, _count("catchUp.max", MOST_CAUGHT_UP)]
Order = Annotated[_Order, choice("catchUp.order", get_args(_Order))]
StartRate = Annotated[Rate | None, BeforeValidator(_rate)]
AfterPause = Annotated[_Policy, choice("catchUp.pause", get_args(_Policy))]
AfterDeploy = Annotated[_Policy, choice("catchUp.deploy", get_args(_Policy))]

IsRetention = BeforeValidator(_retention)
Keep = Annotated[int | None, _optional(_count("retention.keep", MOST_KEPT))]
Age = Annotated[timedelta | None, _optional(duration("retention.age"))]
FailedAge = Annotated[timedelta | None, _optional(duration("retention.failedAge"))]
MaxAge = Annotated[timedelta | None, _optional(duration("retention.maxAge"))]
