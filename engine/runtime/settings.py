"""Runtime settings from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from engine.errors import SettingsInvalid
from engine.ledger.postgres.address import checked_address
from engine.schedules.units import format_duration, parse_duration

# --- settings ---
# Settings of a replica: its periods, limits and timeouts, each with the bounds that it must keep.
#
# A name that nobody knows is as bad as a value that nobody can work with: both end in a worker that
# does something else than its operator believes. So both are found before anything is started.

ApplyWhen: TypeAlias = Literal["on-start", "never"]


@dataclass(frozen=True, slots=True)
class StartRate:
    """So many in each stretch of time."""

    count: int
    per: timedelta

    @classmethod
    def parse(cls, text: str) -> StartRate:
        """Return the rate that ``50/1s`` writes; a ValueError says what to write instead."""
        count, slash, per = text.partition("/")
        if not slash:
            raise ValueError("write a number and a duration, e.g. 50/1s")
        return cls(_count(count.strip()), parse_duration(per.strip()))

    @property
    def per_second(self) -> float:
        """Starts per second."""
        return self.count / self.per.total_seconds()

    def __str__(self) -> str:
        return f"{self.count}/{self.per.total_seconds():g}s"


Period: TypeAlias = "timedelta | None"
"""How long between two rounds; None is never."""


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
        janitor: how long between two rounds that tidy the ledger; None, written ``off``: never.
        archive: the folder that keeps what leaves the ledger; without it nothing leaves.
        retention_keep: so many of a schedule's newest fires keep their details in any case.
        retention_age: how old others become before they are merged, or leave.
        retention_failed_age: the same of failed ones.
        retention_max_age: nothing becomes older. A schedule's own ``retention`` wins over all four.
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
    start_rate: StartRate | None = None
    max_skew: timedelta = timedelta(seconds=5)
    janitor: Period = timedelta(minutes=10)
    archive: Path | None = None
    retention_keep: int = 1000
    retention_age: timedelta = timedelta(days=90)
    retention_failed_age: timedelta = timedelta(days=365)
    retention_max_age: timedelta = timedelta(days=730)
    apply: ApplyWhen = "on-start"

    @property
    def alive(self) -> timedelta:
        """Time for which a replica counts as living after it announced itself."""
        return self.heartbeat * 3

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Return the settings that ``SCHED_*`` variables name.

        Raises:
            SettingsInvalid: with all of those that cannot be read or are out of bounds.
        """
        given: dict[str, Any] = {}
        problems: list[str] = []
        for field in fields(cls):
            variable = _variable(field.name)
            if text := environment.get(variable):
                parse = _PARSERS.get(str(field.type), parse_duration)
                try:
                    given[field.name] = _within(field.name, parse(text))
                except ValueError as error:
                    problems.append(f"{variable} is {text!r}; {error}")
        if problems:
            raise SettingsInvalid(problems)
        return cls(**given)

    def check(self) -> None:
        """Check settings that an application has made itself.

        Raises:
            SettingsInvalid: with all of those that are out of bounds.
        """
        problems: list[str] = []
        for name in BOUNDS:
            value = getattr(self, name)
            try:
                _within(name, value)
            except ValueError as error:
                problems.append(f"Settings.{name} is {_written(value)}; {error}")
        if problems:
            raise SettingsInvalid(problems)

    def margin_of(self, retention: timedelta) -> timedelta:
        """Return the safety margin for a namespace with this retention."""
        return min(timedelta(minutes=10), retention / 4) if self.margin is None else self.margin


def unknown_names(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return a sentence about each ``SCHED_*`` variable that means nothing to anybody."""
    return [
        f"warning: {name} is not a setting{_hint(name)}"
        for name in sorted(environment)
        if name.startswith("SCHED_") and name not in NAMES and not _SERVICE.search(name)
    ]


def _hint(name: str) -> str:
    near = get_close_matches(name, NAMES, n=1, cutoff=0.8)
    return f"; did you mean {near[0]}?" if near else "; docs/settings.md has all of them"


def _count(text: str) -> int:
    # More digits are no slip of the hand, and Python refuses to read thousands of them.
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
        raise ValueError("write a whole number from 1")
    return int(text)


def _period(text: str) -> Period:
    return None if text == "off" else parse_duration(text)


def _apply(text: str) -> str:
    if text not in {"on-start", "never"}:
        raise ValueError("write on-start or never")
    return text


def _variable(name: str) -> str:
    return f"SCHED_{name.upper()}"


def _within(name: str, value: Any) -> Any:
    """Return a value that keeps its bounds; a ValueError says what to write instead."""
    bounds = BOUNDS.get(name)
    measured = value.per if isinstance(value, StartRate) else value
    if bounds is None or measured is None or bounds[0] <= measured <= bounds[1]:
        return value
    least, most = map(_written, bounds)
    off = ", or off" if name == "janitor" else ""
    of = "a rate over " if isinstance(value, StartRate) else ""
    raise ValueError(f"write {of}{least} to {most}{off}")


def _written(value: Any) -> str:
    """Return a value as the environment has it."""
    try:
        return format_duration(value) if isinstance(value, timedelta) else str(value)
    except ValueError:  # negative, or finer than a millisecond
        return str(value)


_DIGITS: Final = 9
_DAY: Final = timedelta(days=1)
_YEARS: Final = timedelta(days=36_500)

BOUNDS: Final[Mapping[str, tuple[Any, Any]]] = {
    "tick": (timedelta(milliseconds=10), timedelta(minutes=10)),
    # A start is sent within its lease, so a shorter one than a round trip ends before each start.
    "lease": (timedelta(milliseconds=500), timedelta(hours=1)),
    "batch": (1, 10_000),
    "concurrency": (1, 1_000),
    "margin": (timedelta(0), timedelta(days=30)),
    "rpc_timeout": (timedelta(milliseconds=100), timedelta(minutes=1)),
    "heartbeat": (timedelta(milliseconds=100), timedelta(minutes=10)),
    "track": (timedelta(milliseconds=50), timedelta(minutes=10)),
    "drain": (timedelta(0), _DAY),
    "start_rate": (timedelta(milliseconds=1), timedelta(hours=1)),
    "max_skew": (timedelta(milliseconds=100), timedelta(hours=1)),
    "janitor": (timedelta(milliseconds=100), _DAY),
    "retention_keep": (1, 1_000_000),
    "retention_age": (timedelta(0), _YEARS),
    "retention_failed_age": (timedelta(0), _YEARS),
    "retention_max_age": (timedelta(0), _YEARS),
}
"""The least and the most of each setting, both included; of a rate, of the time it counts in."""

NAMES: Final = frozenset(
    {
        *(_variable(field.name) for field in fields(Settings)),
        *(f"SCHED_{name}" for name in (
            "DATABASE_URL", "SCHEMA", "SCHEDULES", "TASK_QUEUE", "IMPORTS", "DATA_DIR", "UI_URL",
            "TEMPORAL_CLI", "DB_PASSWORD", "FAULT",
        )),
    }
)  # fmt: skip
"""Every variable that the engine, its command line or its compose file reads."""

_SERVICE: Final = re.compile(r"_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
"""What Kubernetes puts into every container for a service that is called ``sched-…``."""

_PARSERS: dict[str, Callable[[str], Any]] = {
    "int": _count,
    "Rate | None": StartRate.parse,
    "Period": _period,
    "Path | None": Path,
    "ApplyWhen": _apply,
}
"""How a setting is read, by its annotation; any other is a duration."""


# --- database of the environment ---
# Which database the environment names for the ledger.


def url() -> str | None:
    """Return ``SCHED_DATABASE_URL``, or None when the engine is to run stateless.

    Raises:
        LedgerError: when it is no address of a PostgreSQL database.
    """
    given = os.environ.get("SCHED_DATABASE_URL")
    return checked_address(given) if given else None


def schema() -> str:
    """Return ``SCHED_SCHEMA``."""
    return os.environ.get("SCHED_SCHEMA", "sched")
