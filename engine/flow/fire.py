"""Fire information in the memo of a run.

The window a run was started for, as the run's memo carries it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

from temporalio.workflow import unsafe

with unsafe.imports_passed_through():
    from engine.flow.zones import zone

MEMO_KEY: Final = "sched"
"""The memo key under which every run of ours carries its fire."""

MEMO_VERSION: Final = 1

Timing = Literal["on_time", "late", "caught_up", "manual", "backfill", "rerun"]
"""How a run came to be. A new word here needs a new ``MEMO_VERSION``: older readers refuse it."""


@dataclass(frozen=True)
class FireInfo:
    """The window of a schedule for which a run was started.

    Attributes:
        key: The schedule's key.
        series: Which life of the key; it grows when the key is re-created or changes its cadence.
        bucket: The window's number: ``floor((ms - offsetMs) / everyMs)`` of an interval, the fire
            time in epoch milliseconds of a cron or one-shot schedule.
        fire_time: The nominal instant at which the window opened; aware, kept in UTC and floored
            to the millisecond.
        timezone: The schedule's IANA zone.
        timing: Why the run started when it did.
        definition_version: The version of the schedule's definition that owned the window.
        project: The owner of the schedule.
        ledger: The id of the ledger that decided the fire.
        token: The claim this start belongs to.
        missed: How many further windows a catch-up stands for, besides its own.
        data_from: Where the data of this run begins: where those of the last earlier window end
            that has begun, or is still to begin. None where there is none, as of a first run.
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
        """Refuse a naive fire time and keep an aware one in UTC, in whole milliseconds."""
        if self.fire_time.tzinfo is None:
            raise ValueError("fire_time has no timezone; give an aware datetime")
        if self.timing not in get_args(Timing):
            raise ValueError(
                f"timing {self.timing!r} is not one of: {', '.join(get_args(Timing))}",
            )
        for name in ("fire_time", "data_from"):
            if (moment := getattr(self, name)) is not None:
                object.__setattr__(self, name, _whole_ms(moment))

    @property
    def data_to(self) -> datetime:
        """End of this run's data interval, exclusive: the fire time.

        ``[data_from, data_to)`` of successive runs meet, whatever was missed, skipped or excluded
        between them. See "Data intervals" in docs/schedules.md for what is told where they do not.
        """
        return self.fire_time

    @property
    def local_time(self) -> datetime:
        """The fire time on the clocks of the schedule's timezone.

        The rules come from the pinned ``tzdata`` package, as those of the planner do. A rules
        update between a run and its replay can therefore change this value: print it, store it,
        but do not branch on it in a workflow that outlives deployments.

        Raises:
            TimezoneInvalid: ``timezone`` is no IANA zone of the installed ``tzdata``.
        """
        return self.fire_time.astimezone(zone(self.timezone))

    def to_memo(self) -> dict[str, Any]:
        """Return the JSON object that the memo carries under ``MEMO_KEY``."""
        # `asdict` would copy every value deeply, which is felt when a thousand are due at once.
        memo = {"v": MEMO_VERSION, **vars(self), "fire_time": _written(self.fire_time)}
        if self.data_from is None:
            del memo["data_from"]
        else:
            memo["data_from"] = _written(self.data_from)
        return memo

    @classmethod
    def from_memo(cls, value: object) -> FireInfo:
        """Read back what ``to_memo`` wrote, in this version or a newer minor one.

        Fields this version does not know are ignored.

        Raises:
            ValueError: This is not a fire of ours, or one of an unknown memo version.
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
