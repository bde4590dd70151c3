"""Fire information in the memo of a run: the window that the run was started for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

from temporalio.workflow import unsafe

with unsafe.imports_passed_through():
    from engine.flow.zones import zone

MEMO_KEY: Final = "sched"
"""The memo key of the fire in every run that the engine starts."""

MEMO_VERSION: Final = 1

Timing = Literal["on_time", "late", "caught_up", "manual", "backfill", "rerun"]
"""Why a run started when it did. Older readers refuse a new value: raise ``MEMO_VERSION``."""


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
        if self.data_from is None:
            del memo["data_from"]
        else:
            memo["data_from"] = _written(self.data_from)
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
            missed=_number(value, "missed") if "missed" in value else 0,
            data_from=_instant(value, "data_from") if "data_from" in value else None,
        )


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
