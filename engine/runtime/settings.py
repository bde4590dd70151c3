"""How a replica works: its periods, bounds and patience."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from engine.errors import ScheduleError
from engine.schedules.durations import parse_duration

ApplyWhen: TypeAlias = Literal["on-start", "never"]


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in each stretch of time."""

    count: int
    per: timedelta

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Return the rate that ``50/1s`` writes; a ValueError says what to write instead."""
        count, slash, per = text.partition("/")
        if not slash:
            raise ValueError("write a number and a duration, e.g. 50/1s")
        return cls(_count(count.strip()), parse_duration(per.strip()))

    @property
    def per_second(self) -> float:
        """How many a second."""
        return self.count / self.per.total_seconds()

    def __str__(self) -> str:
        return f"{self.count}/{self.per.total_seconds():g}s"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one replica; ``SCHED_<NAME>`` in the environment sets each of them.

    Attributes:
        tick: the longest sleep between two probes of the ledger.
        lease: how long a claim is its owner's alone.
        batch: the most windows a replica holds that are claimed and not yet settled; half of it
            until it has shown that it can start so many in a quarter of a lease.
        concurrency: starts in flight at once. With fewer the server waits for us, with hundreds
            a small one is slower.
        margin: how much earlier than the namespace's retention a start that nobody answered
            for stops being repeatable; None is the smaller of 10 minutes and a quarter of it.
        rpc_timeout: patience with one answer of the Temporal server.
        heartbeat: how often the replica says that it lives.
        track: how often closed runs are looked for.
        drain: how long steps in flight may go on after a worker was asked to leave.
        start_rate: the most starts this replica sends, written ``50/1s``; None leaves it to the
            Temporal server to say when there are too many.
        max_skew: how far the database's clock may differ from the time that has passed here
            before nothing is started.
        apply: whether a worker applies its file when it starts. With ``never`` somebody else
            does, e.g. a deploy with ``sched apply``, and the file only names the project.
    """

    tick: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=30)
    batch: int = 200
    concurrency: int = 32
    margin: timedelta | None = None
    rpc_timeout: timedelta = timedelta(seconds=5)
    heartbeat: timedelta = timedelta(seconds=10)
    track: timedelta = timedelta(seconds=2)
    drain: timedelta = timedelta(seconds=20)
    start_rate: Rate | None = None
    max_skew: timedelta = timedelta(seconds=5)
    apply: ApplyWhen = "on-start"

    @property
    def alive(self) -> timedelta:
        """How long a replica counts as living after it announced itself."""
        return self.heartbeat * 3

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Return the settings that ``SCHED_*`` variables name.

        Raises:
            ScheduleError: when one of them is no duration, positive number, rate or word.
        """
        given: dict[str, Any] = {}
        for field in fields(cls):
            variable = f"SCHED_{field.name.upper()}"
            if text := environment.get(variable):
                parse = _PARSERS.get(str(field.type), parse_duration)
                try:
                    given[field.name] = parse(text)
                except ValueError as error:
                    raise ScheduleError(f"{variable} is {text!r}", cure=str(error)) from error
        return cls(**given)

    def margin_of(self, retention: timedelta) -> timedelta:
        """Return the safety margin for a namespace with this retention."""
        return min(timedelta(minutes=10), retention / 4) if self.margin is None else self.margin


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("write a whole number from 1")
    return int(text)


def _apply(text: str) -> str:
    if text not in {"on-start", "never"}:
        raise ValueError("write on-start or never")
    return text


_PARSERS: dict[str, Callable[[str], Any]] = {
    "int": _count,
    "Rate | None": Rate.parse,
    "ApplyWhen": _apply,
}
"""How a setting is read, by its annotation; any other is a duration."""
