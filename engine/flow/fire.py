"""Fire information in the memo of a run: the window that the run was started for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

from temporalio.workflow import unsafe

with unsafe.imports_passed_through():
    from engine.flow.zones import zone

MEMO_KEY: Final = "sched"
"""The memo key of the fire in every run that the engine starts."""

MEMO_VERSION: Final = 1

Timing = Literal["on_time", "late", "caught_up", "manual", "backfill", "rerun", "handler"]
"""Why a run started when it did. Earlier code refuses a new value: raise ``MEMO_VERSION``."""


@dataclass(frozen=True)
class FireInfo:
    """The window of a schedule for which a run was started.

    Attributes:
        key: The schedule's key.
        series: The generation of the key; it grows when the key is re-created or changes cadence.
        bucket: The window's number: ``floor((ms - offsetMs) / everyMs)`` of an interval, the fire
            time in epoch milliseconds of a cron or one-shot schedule.
        fire_time: The nominal instant at which the window opened; aware, kept in UTC and floored
            to the millisecond.
        timezone: The schedule's IANA zone.
        timing: Why the run started when it did.
        definition_version: The version of the schedule's definition that owned the window.
        project: The owner of the schedule.
        ledger: The id of the ledger that decided the fire.
        token: The claim that this start belongs to.
        missed: How many further windows a catch-up run covers, besides its own.
        data_from: Start of this run's data: the end of the data of the last earlier window that
            has started or is still to start. None if there is none, as for a first run.
        topic: The schedule's topic, if it has one.
        metadata: The schedule's metadata: for audit and routing, never a permission. Of more than
            8 KB only the names of the four properties below are here.
        retry_intervals: The waits between the tries of the run in seconds, if its schedule lists
            them; the last one repeats.
        timeout: How many seconds the run may take; None is no limit.
        was: The first key of a schedule that was renamed; None is its own.
        fired_at: When a worker began this run; None outside of a run.
        attempt: Which try of the run this is, from 1.
        max_attempts: How many tries it has at most; None is as many as it takes.
    """

    key: str
    series: int
    bucket: int
    fire_time: datetime
    timezone: str
    timing: Timing
    definition_version: int
    project: str
    ledger: str
    token: str
    missed: int = 0
    data_from: datetime | None = None
    topic: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    retry_intervals: tuple[float, ...] = ()
    timeout: float | None = None
    retries: bool = False
    was: str | None = None
    # Of the run, not of the window: `ctx.fire` has them, the memo does not.
    fired_at: datetime | None = field(default=None, compare=False)
    attempt: int = field(default=1, compare=False)
    max_attempts: int | None = field(default=1, compare=False)

    def __post_init__(self) -> None:
        """Refuse naive datetimes and unknown timing; convert to UTC, in whole milliseconds."""
        if self.timing not in get_args(Timing):
            raise ValueError(
                f"timing {self.timing!r} is not one of: {', '.join(get_args(Timing))}",
            )
        for name in ("fire_time", "data_from"):
            if (moment := getattr(self, name)) is None:
                continue
            if moment.tzinfo is None:
                raise ValueError(f"{name} has no timezone; give an aware datetime")
            object.__setattr__(self, name, _whole_ms(moment))

    @property
    def data_to(self) -> datetime:
        """End of this run's data interval, exclusive: the fire time.

        The intervals ``[data_from, data_to)`` of successive runs meet, whatever was missed, skipped
        or excluded between them. For the exceptions see "Data intervals" in docs/schedules.md.
        """
        return self.fire_time

    @property
    def owner_id(self) -> str | None:
        """The ``ownerId`` of the schedule's metadata."""
        return self._identity("ownerId")

    @property
    def tenant_id(self) -> str | None:
        """The ``tenantId`` of the schedule's metadata."""
        return self._identity("tenantId")

    @property
    def correlation_id(self) -> str | None:
        """The ``correlationId`` of the schedule's metadata."""
        return self._identity("correlationId")

    @property
    def client_request_id(self) -> str | None:
        """The request id under which an application asked for the schedule."""
        return self._identity("clientRequestId")

    def _identity(self, name: str) -> str | None:
        value = self.metadata.get(name)
        return None if value is None else str(value)

    @property
    def local_time(self) -> datetime:
        """The fire time in the schedule's timezone.

        The rules come from the pinned ``tzdata`` package, like those of the planner. An update of
        the rules between a run and its replay can change this value: print it or store it, but do
        not branch on it in a workflow that outlives deployments.

        Raises:
            TimezoneInvalid: ``timezone`` is not an IANA zone of the installed ``tzdata``.
        """
        return self.fire_time.astimezone(zone(self.timezone))

    def to_memo(self) -> dict[str, Any]:
        """Return the JSON object that the memo carries under ``MEMO_KEY``."""
        # `asdict` would deep-copy every value, which is noticeable when a thousand fires are due.
        memo = {"v": MEMO_VERSION, **vars(self), "fire_time": _written(self.fire_time)}
        for name in _OF_THE_RUN:
            del memo[name]
        for name in _OPTIONAL:
            if not memo[name]:
                del memo[name]
        if self.data_from is not None:
            memo["data_from"] = _written(self.data_from)
        if self.metadata:
            memo["metadata"] = dict(self.metadata)
        if self.retry_intervals:
            memo["retry_intervals"] = list(self.retry_intervals)
        return memo

    @classmethod
    def from_memo(cls, value: object) -> FireInfo:
        """Parse what ``to_memo`` returned, in this version or a newer minor one.

        Unknown fields are ignored.

        Raises:
            ValueError: This is not a fire of the engine, or its memo version is unknown.
        """
        if not isinstance(value, Mapping):
            raise _not_ours(f"expected a JSON object, got {type(value).__name__}")
        version = value.get("v")
        if isinstance(version, bool) or version != MEMO_VERSION:
            raise _not_ours(f"v is {version!r}, this version reads {MEMO_VERSION}")
        return cls(
            key=_text(value, "key"),
            series=_number(value, "series"),
            bucket=_number(value, "bucket"),
            fire_time=_instant(value, "fire_time"),
            timezone=_text(value, "timezone"),
            timing=_text(value, "timing"),  # type: ignore[arg-type] # __post_init__ checks the word
            definition_version=_number(value, "definition_version"),
            project=_text(value, "project"),
            ledger=_text(value, "ledger"),
            token=_text(value, "token"),
            missed=_number(value, "missed"),
            data_from=_instant(value, "data_from") if "data_from" in value else None,
            topic=_text(value, "topic") if "topic" in value else None,
            metadata=_names(value, "metadata") if "metadata" in value else {},
            retry_intervals=_waits(value) if "retry_intervals" in value else (),
            timeout=_seconds(value, "timeout") if "timeout" in value else None,
            retries=bool(value.get("retries")),
            was=_text(value, "was") if "was" in value else None,
        )


_OF_THE_RUN: Final = ("fired_at", "attempt", "max_attempts")
_OPTIONAL: Final = (
    "data_from",
    "topic",
    "metadata",
    "retry_intervals",
    "timeout",
    "retries",
    "was",
)
"""Fields that a memo has only if there is something in them."""

IDENTITIES: Final = ("ownerId", "tenantId", "correlationId", "clientRequestId")
"""Names in metadata that say for whom a schedule is, and who asked for it."""


def _whole_ms(moment: datetime) -> datetime:
    utc = moment.astimezone(UTC)
    return utc.replace(microsecond=utc.microsecond // 1000 * 1000)


def _written(moment: datetime) -> str:
    precision = "milliseconds" if moment.microsecond else "seconds"
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"


def _text(value: Mapping[str, object], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or not found:
        raise _not_ours(f"{name} is {found!r}, expected text")
    return found


def _names(value: Mapping[str, object], name: str) -> dict[str, Any]:
    found = value.get(name)
    if not isinstance(found, Mapping):
        raise _not_ours(f"{name} is {found!r}, expected a mapping")
    return {str(each): item for each, item in found.items()}


def _waits(value: Mapping[str, object]) -> tuple[float, ...]:
    found = value["retry_intervals"]
    if isinstance(found, list) and all(type(each) in {int, float} and each > 0 for each in found):
        return tuple(map(float, found))
    raise _not_ours(f"retry_intervals is {found!r}, expected a list of seconds")


def _seconds(value: Mapping[str, object], name: str) -> float:
    found = value.get(name)
    if type(found) in {int, float} and found > 0:  # type: ignore[operator] # a number
        return float(found)  # type: ignore[arg-type]
    raise _not_ours(f"{name} is {found!r}, expected seconds")


def _number(value: Mapping[str, object], name: str) -> int:
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, int):
        raise _not_ours(f"{name} is {found!r}, expected an integer")
    return found


def _instant(value: Mapping[str, object], name: str) -> datetime:
    text = _text(value, name)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _not_ours(f"{name} is {text!r}, expected an ISO 8601 instant") from None


def _not_ours(reason: str) -> ValueError:
    return ValueError(f"not a fire of sched-engine: {reason}")
