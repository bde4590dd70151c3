"""Runtime settings from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from engine.errors import LedgerRequired, SettingsInvalid, nearest, question
from engine.events.addresses import Allowed
from engine.ledger.postgres.address import checked_address
from engine.schedules import DEFAULT_PROJECT, KEY, Rate, format_duration, parse_duration, parse_rate

# --- settings ---
# Periods, limits and timeouts of a replica, each with its bounds. An unknown name is as bad as an
# invalid value: the worker would not do what its operator expects. Both are reported at start.

ApplyWhen: TypeAlias = Literal["on-start", "never"]


Url: TypeAlias = "str | None"
"""An address of HTTP; None is none."""

Hosts: TypeAlias = "str | None"
"""Hosts, addresses and networks; None is none."""

Period: TypeAlias = "timedelta | None"
"""Time between two rounds; None is never."""

LogFormat: TypeAlias = Literal["text", "json"]

LogForm: TypeAlias = "LogFormat | None"
"""Form of the log of a process; None is none, for lines to people."""

Patterns: TypeAlias = tuple[str, ...]
"""Keys, each with ``*`` for any text."""

Names: TypeAlias = tuple[str, ...]
"""Host names, without ports."""


_TEN_A_SECOND: Final = Rate(600, timedelta(minutes=1))
_ONE_A_SECOND: Final = Rate(60, timedelta(minutes=1))


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one replica; ``SCHED_<NAME>`` in the environment sets each of them.

    Attributes:
        tick: the longest sleep between two probes of the ledger.
        lease: how long a claim belongs to its owner alone.
        batch: the most windows a replica holds claimed and unsettled. The limit in effect is the
            number of its starts in the last half of a lease, but at least 200. Of one workflow of
            one tenant, and of all windows that are late, it holds half as many.
        concurrency: starts in flight at once. With too few the server waits for the replica, with
            hundreds a small server is slower.
        margin: how much earlier than the namespace's retention an unanswered start stops being
            repeatable; None is the smaller of 10 minutes and a quarter of the retention.
        rpc_timeout: timeout of one call to the Temporal server.
        heartbeat: how often the replica announces itself.
        track: how often the tracker looks for closed runs.
        drain: how long steps in flight may continue after a worker was asked to stop.
        start_rate: the most starts this replica sends, written ``50/1s``; with None only the
            Temporal server limits them.
        tenant_rate: the same for each ``tenantId`` of schedules' metadata.
        loop_lag: how long a step may block the worker's event loop before it is named; None,
            written ``off``: for ever.
        max_skew: how far the database's clock may deviate from elapsed time before starts stop.
        failing_attempts: number of failed attempts from which on a step of an open run is
            reported.
        failing_after: time since its first failure after which a step is reported, however few
            attempts have failed.
        janitor: time between two rounds of the janitor; None, written ``off``: never.
        archive: the folder for rows that leave the ledger; without it none leave.
        retention_keep: number of a schedule's newest fires that always keep their details.
        retention_age: the age at which other fires are merged or leave.
        retention_failed_age: the same for failed fires.
        retention_max_age: the age limit of all fires. A schedule's own ``retention`` overrides
            these four.
        alert_url: the address that receives each problem that the watch finds, and its end.
        heartbeat_url: the address that is called every minute while no window may be late.
        apply: whether a worker applies its file at start. With ``never`` another process does,
            e.g. a deploy with ``sched apply``, and the file only names the project.
        hooks_allow: hosts, addresses and networks that webhooks may reach although they are not
            public, with commas between: ``hooks.internal:8443,10.1.0.0/16``.
        events_keep: how long events stay that all subscriptions have got.
        metrics_keys: schedules whose keys may be labels of metrics, with ``*`` for any text.
        log_format: the form of the log of ``sched worker``, ``up`` and ``watch``; None for lines to
            people. An application configures its own logging.
        api_hosts: names by which the REST API is reached, besides loopback.
        api_create_rate: the most schedules that a caller of the API may declare, for each
            process; None is unlimited.
        api_trigger_rate: the same for triggers and reruns.
        api_backfill_rate: the same for backfills.
    """

    tick: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=30)
    batch: int = 400
    concurrency: int = 32
    margin: timedelta | None = None
    rpc_timeout: timedelta = timedelta(seconds=5)
    heartbeat: timedelta = timedelta(seconds=10)
    track: timedelta = timedelta(seconds=2)
    drain: timedelta = timedelta(seconds=20)
    start_rate: Rate | None = None
    tenant_rate: Rate | None = None
    loop_lag: Period = timedelta(seconds=3)
    max_skew: timedelta = timedelta(seconds=5)
    failing_attempts: int = 5
    failing_after: timedelta = timedelta(minutes=5)
    janitor: Period = timedelta(minutes=10)
    archive: Path | None = None
    retention_keep: int = 1000
    retention_age: timedelta = timedelta(days=90)
    retention_failed_age: timedelta = timedelta(days=365)
    retention_max_age: timedelta = timedelta(days=730)
    alert_url: Url = None
    heartbeat_url: Url = None
    apply: ApplyWhen = "on-start"
    hooks_allow: Hosts = None
    events_keep: timedelta = timedelta(days=1)
    metrics_keys: Patterns = ()
    log_format: LogForm = None
    api_hosts: Names = ()
    api_create_rate: Rate | None = _TEN_A_SECOND
    api_trigger_rate: Rate | None = _TEN_A_SECOND
    api_backfill_rate: Rate | None = _ONE_A_SECOND

    @property
    def alive(self) -> timedelta:
        """Time for which a replica counts as living after an announcement."""
        return self.heartbeat * 3

    @property
    def calls(self) -> str | None:
        """The variable of an address that is to be called; None without one."""
        called = ("alert_url", "heartbeat_url")
        return next((_variable(name) for name in called if getattr(self, name)), None)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """Return the settings from ``SCHED_*`` variables.

        Raises:
            SettingsInvalid: lists all variables that cannot be read or are out of bounds.
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
                    # Many services put a secret into the path.
                    shown = "no address of HTTP" if parse is _url else repr(text)
                    problems.append(f"{variable} is {shown}; {error}")
        if problems:
            raise SettingsInvalid(problems)
        return cls(**given)

    def check(self) -> None:
        """Check settings that an application has constructed.

        Raises:
            SettingsInvalid: lists all settings that are out of bounds.
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
    """Return a warning for each unknown ``SCHED_*`` variable."""
    return [
        f"warning: {name} is not a setting{_hint(name)}"
        for name in sorted(environment)
        if name.startswith("SCHED_") and name not in NAMES and not _SERVICE.search(name)
    ]


def _hint(name: str) -> str:
    near = nearest(name, NAMES, cutoff=0.8)
    return "; " + question(*near, otherwise="`sched docs settings` has all of them")


def _count(text: str) -> int:
    # More digits are no typo, and Python refuses to parse thousands of them.
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
        raise ValueError("write a whole number from 1")
    return int(text)


def _patterns(text: str) -> Patterns:
    found = tuple(filter(None, (each.strip() for each in text.split(","))))
    for each in found:
        if any(letter.isspace() or letter == ":" for letter in each):
            raise ValueError("write schedule keys with commas between them, as billing-*,nightly")
    return found


def _names(text: str) -> Names:
    found = tuple(filter(None, (each.strip().lower() for each in text.split(","))))
    for each in found:
        if any(letter.isspace() or letter in "/:*" for letter in each):
            raise ValueError("write names with commas between them, as sched.example.com")
    return found


def _url(text: str) -> Url:
    try:
        parts = urlsplit(text)
        named = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        named = None
    if not named:
        raise ValueError("write an address that begins with http:// or https://")
    return text


def _hosts(text: str) -> Hosts:
    Allowed.parse(text)
    return text


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"write {' or '.join(words)}")
        return text

    return parse


def _variable(name: str) -> str:
    return f"SCHED_{name.upper()}"


def _within(name: str, value: Any) -> Any:
    """Return a value within its bounds; the ValueError explains what to write instead."""
    bounds = BOUNDS.get(name)
    measured = value.per if isinstance(value, Rate) else value
    if bounds is None or measured is None or bounds[0] <= measured <= bounds[1]:
        return value
    least, most = map(_written, bounds)
    off = ", or off" if name in {"janitor", "loop_lag"} else ""
    of = "a rate over " if isinstance(value, Rate) else ""
    raise ValueError(f"write {of}{least} to {most}{off}")


def _written(value: Any) -> str:
    """Return a value as written in the environment."""
    try:
        return format_duration(value) if isinstance(value, timedelta) else str(value)
    except ValueError:  # negative, or finer than a millisecond
        return str(value)


_DIGITS: Final = 9
_DAY: Final = timedelta(days=1)
_YEARS: Final = timedelta(days=36_500)

BOUNDS: Final[Mapping[str, tuple[Any, Any]]] = {
    "tick": (timedelta(milliseconds=10), timedelta(minutes=10)),
    # A start is sent within its lease; one shorter than a round trip would end before each start.
    "lease": (timedelta(milliseconds=500), timedelta(hours=1)),
    "batch": (1, 10_000),
    "concurrency": (1, 1_000),
    "margin": (timedelta(0), timedelta(days=30)),
    "rpc_timeout": (timedelta(milliseconds=100), timedelta(minutes=1)),
    "heartbeat": (timedelta(milliseconds=100), timedelta(minutes=10)),
    "track": (timedelta(milliseconds=50), timedelta(minutes=10)),
    "drain": (timedelta(0), _DAY),
    "start_rate": (timedelta(milliseconds=1), timedelta(hours=1)),
    "tenant_rate": (timedelta(milliseconds=1), timedelta(hours=1)),
    "loop_lag": (timedelta(milliseconds=100), timedelta(hours=1)),
    "api_create_rate": (timedelta(seconds=1), _DAY),
    "api_trigger_rate": (timedelta(seconds=1), _DAY),
    "api_backfill_rate": (timedelta(seconds=1), _DAY),
    "max_skew": (timedelta(milliseconds=100), timedelta(hours=1)),
    "failing_attempts": (1, 1_000_000),
    "failing_after": (timedelta(0), _YEARS),
    "janitor": (timedelta(milliseconds=100), _DAY),
    "events_keep": (timedelta(0), _YEARS),
    "retention_keep": (1, 1_000_000),
    "retention_age": (timedelta(0), _YEARS),
    "retention_failed_age": (timedelta(0), _YEARS),
    "retention_max_age": (timedelta(0), _YEARS),
}
"""Minimum and maximum of each setting, both included; for a rate, of its period."""

NAMES: Final = frozenset(
    {
        *(_variable(field.name) for field in fields(Settings)),
        *(
            f"SCHED_{name}"
            for name in (
                "DATABASE_URL",
                "SCHEMA",
                "SCHEDULES",
                "PROJECT",
                "TASK_QUEUE",
                "IMPORTS",
                "DATA_DIR",
                "UI_URL",
                "TEMPORAL_CLI",
                "DB_PASSWORD",
                "DB_OWNER_PASSWORD",
                "DB_ADMIN_PASSWORD",
                "FAULT",
                "SETUP",
                "HTTP_PORT",
                "HTTP_HOST",
                "API_TOKEN",
                "API_HOST",
                "API_PORT",
                "TEST_DATABASE_URL",
            )
        ),
    }
)
"""Every variable that the engine, its command line, its testing kit or its compose file reads."""

_SERVICE: Final = re.compile(r"_(SERVICE_(HOST|PORT)(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
"""Variables that Kubernetes adds to every container for a service named ``sched-…``."""

_PARSERS: dict[str, Callable[[str], Any]] = {
    "int": _count,
    "Rate | None": parse_rate,
    "Period": lambda text: None if text == "off" else parse_duration(text),
    "Path | None": Path,
    "Url": _url,
    "Hosts": _hosts,
    "ApplyWhen": _one_of(*get_args(ApplyWhen)),
    "Patterns": _patterns,
    "Names": _names,
    "LogForm": _one_of(*get_args(LogFormat)),
}
"""Parsers of settings by annotation; any other setting is a duration."""


# --- database of the environment ---
# The ledger's database and schema.


def database_url(given: str | None = None) -> str | None:
    """Return the address that is given, or ``SCHED_DATABASE_URL``; None without either.

    Raises:
        LedgerError: it is no address of a PostgreSQL database.
    """
    if given:
        return checked_address(given, "database_url")
    url = os.environ.get("SCHED_DATABASE_URL")
    return checked_address(url) if url else None


def require_database_url(given: str | None = None) -> str:
    """Return ``database_url``.

    Raises:
        LedgerRequired: neither is set.
        LedgerError: it is no address of a PostgreSQL database.
    """
    if (url := database_url(given)) is None:
        raise no_ledger()
    return url


def no_ledger(more: str = "") -> LedgerRequired:
    """Return the error for a process that nothing names a ledger to; ``more`` ends its hint."""
    return LedgerRequired(
        "there is no ledger: SCHED_DATABASE_URL is not set",
        hint=f"set it, or run `sched up`, which brings a PostgreSQL of its own{more}",
    )


def database_schema() -> str:
    """Return ``SCHED_SCHEMA``."""
    return os.environ.get("SCHED_SCHEMA", "sched")


def default_project(otherwise: str = DEFAULT_PROJECT) -> str:
    """Return ``SCHED_PROJECT``: the project of what is declared without one.

    Args:
        otherwise: without that variable.

    Raises:
        SettingsInvalid: it is no name of a project.
    """
    project = os.environ.get("SCHED_PROJECT") or otherwise
    if not KEY.fullmatch(project):
        raise SettingsInvalid(
            [f"SCHED_PROJECT is {_written(project)}; write a-z, 0-9, '.', '_' and '-'"]
        )
    return project
