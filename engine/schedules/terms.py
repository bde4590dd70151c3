"""Terms that schedules, planner and ledgers share: ids, policies and reasons.

A fire's ``reason`` is a sentence for people; its reason code, from a closed list, is for code that
decides, counts or filters. For writers of older versions, which give a sentence alone, PostgreSQL
derives the code (``reason_code_of`` in migrations 0011 and 0023). The list is in docs/ledger.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, Literal, Self

# --- windows and workflow ids ---
# Workflow ids name windows, manual triggers, reruns and handler runs.

KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
"""Pattern of schedule keys and projects. It has no colon, so ids parse unambiguously and a prefix
query for ``sched:<key>:`` cannot match another key."""

REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Pattern of the request id of a manual trigger."""

# Numbers are spelled as Python prints them: no leading zeros.
_BUCKET = r"(?P<bucket>0|-?[1-9][0-9]{0,18})"
_SERIES = r"(?::s(?P<series>0|[1-9][0-9]{0,18}))?"
_RERUN = r"(?::rerun:(?P<rerun>[1-9][0-9]{0,18}))?"
_ID = re.compile(
    rf"sched:(?P<key>{KEY.pattern}):"
    rf"(?:{_BUCKET}{_SERIES}{_RERUN}|manual:(?P<request_id>{REQUEST_ID.pattern}))"
    r"(?::(?P<handler>dead|undo))?"
)


@dataclass(frozen=True, slots=True)
class Window:
    """One window of one schedule; it has at most one run.

    Attributes:
        key: the schedule's key.
        series: grows when the key's buckets may mean different windows than before.
        bucket: the window's number within the series.
        fire_time: the nominal instant at which it opens, in UTC.
    """

    key: str
    series: int
    bucket: int
    fire_time: datetime

    def __post_init__(self) -> None:
        if self.fire_time.tzinfo is None:
            raise ValueError("fire_time is naive; give it a timezone")
        if self.fire_time.tzinfo is not UTC:
            object.__setattr__(self, "fire_time", self.fire_time.astimezone(UTC))

    def workflow_id(self, suffixed: bool) -> str:  # noqa: FBT001 - one question, and its name says which
        """Return the id of the window's run; ``suffixed`` adds the series.

        A series is suffixed when its first bucket is not above the highest one the key ever used.
        Otherwise the id could equal that of an older window, and Temporal would reject it.
        """
        series = f":s{self.series}" if suffixed else ""
        return f"sched:{self.key}:{self.bucket}{series}"


@dataclass(frozen=True, slots=True)
class ParsedId:
    """The parts of one of the engine's workflow ids.

    Attributes:
        key: the schedule's key.
        bucket: the window's number; None for a manual trigger.
        series: the series; None where the id has no suffix.
        request_id: the name of a manual trigger; None for a window.
        rerun: the number of the rerun; None for the window's own run.
        handler: ``dead`` or ``undo``, for a handler of the run that the rest of the id names.
    """

    key: str
    bucket: int | None = None
    series: int | None = None
    request_id: str | None = None
    rerun: int | None = None
    handler: str | None = None


def parse_workflow_id(text: str) -> ParsedId | None:
    """Return the parts of ``text``, or None if it is not one of the engine's ids."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    return ParsedId(
        key=match["key"],
        bucket=_number(match["bucket"]),
        series=_number(match["series"]),
        request_id=match["request_id"],
        rerun=_number(match["rerun"]),
        handler=match["handler"],
    )


def is_suffixed(workflow_id: str) -> bool:
    """Return whether the id of a window's run names its series."""
    parsed = parse_workflow_id(workflow_id)
    return parsed is not None and parsed.series is not None


def _number(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


# --- workflow type versions ---

_COMPARED: Final = 100
"""Characters of a name that are compared; the comparison takes quadratic time."""


def version_order(version: str) -> tuple[int, ...]:
    """Return the sort key of a dotted version: ``1.10`` is newer than ``1.9``.

    Trailing zeros do not count, so ``1`` and ``1.0`` are equal.
    """
    numbers = [int(part) for part in version.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def resolve_type(workflow: str, announced: Iterable[str]) -> str | None:
    """Return the exact Temporal type to start, or None while no worker has announced one.

    The exact name wins, then the highest ``name@version``. Announced types are never removed, so
    the result never falls below that of an earlier fire. External workflows are not resolved.
    """
    types = set(announced)
    if workflow in types:
        return workflow
    prefix = f"{workflow}@"
    versions = [name[len(prefix) :] for name in types if name.startswith(prefix)]
    dotted = [version for version in versions if _is_dotted(version)]
    return prefix + max(dotted, key=version_order) if dotted else None


def nearest_name(workflow: str, announced: Iterable[str]) -> str | None:
    """Return the announced name that is closest to ``workflow``, or None.

    A type ``hello@1`` is proposed as ``hello``, unless ``workflow`` has a version.
    """
    names = set(announced)
    if "@" not in workflow:
        names = {name.partition("@")[0] for name in names}
    by_lower = {name.lower()[:_COMPARED]: name for name in sorted(names)}
    near = get_close_matches(workflow.lower()[:_COMPARED], by_lower, n=1)
    return by_lower[near[0]] if near else None


def _is_dotted(version: str) -> bool:
    return all(part.isdecimal() for part in version.split("."))


# --- policies, limits of values, reasons ---

When = Literal["success", "failure", "always"]
"""Required outcome of the parent's run: it completed, it did not, or either."""

Which = Literal["same", "latest"]
"""Awaited window of the parent: of the same fire time, or the newest not skipped or expired."""

MAX_DEPTH: Final = 20
"""Levels of nesting: file, list, schedule, ``input`` and sixteen more."""

MAX_DIGITS: Final = 300
"""Digits of a number. More exceed every double, and Python refuses to print thousands."""

UNSTORABLE: Final = "the text holds a NUL or half a character, which no database keeps"


class _Broken:
    """The type of ``BROKEN``."""

    def __repr__(self) -> str:
        return "BROKEN"


BROKEN: Final = _Broken()
"""Placeholder for a value whose problem has been reported; it is not checked again."""


def is_storable(text: str) -> bool:
    """Return whether PostgreSQL can store the text: no NUL, no lone surrogate."""
    if "\0" in text:
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


FirstFire = Literal["now", "next"]

CatchUpPolicy = Literal["latest", "all", "none"]

CatchUpOrder = Literal["oldest", "newest"]

Overlap = Literal["allow", "skip", "queue", "queue_one", "cancel_previous", "terminate_previous"]

Stop = Literal["cancel", "terminate"]

STOPS: Final[Mapping[Overlap, Stop]] = {
    "cancel_previous": "cancel",
    "terminate_previous": "terminate",
}
"""Policies by which a window takes the place of a run, and the stop requested of that run."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One parent that a window waits for, and the required outcome of the parent's window."""

    parent: str
    when: When = "success"
    window: Which = "same"

    def to_json(self) -> dict[str, str]:
        """Return the rule as the ledger stores it."""
        return asdict(self)


LOOKS_AT_ONCE: Final = 100
"""Most runs of one key to look at before the key is planned again; each look costs a call."""

LOOKS: Final[frozenset[Overlap]] = frozenset({"skip", "queue_one"})
"""Policies under which open runs usually cost windows their start. All open runs are looked at
first, in one round: if looks took longer than windows take to come in, none would be decided."""


ReasonCode = Literal[
    "user", "overlap", "queue_full", "excluded", "coalesced", "dependency",
    "paused", "disabled", "retired", "expired", "first_sight", "caught_up",
    "unknown_workflow", "foreign_run", "refused", "payload_too_large", "may_have_run",
]  # fmt: skip


class Reason(str):
    """Why a fire became what it is: a sentence for people, and the code that logic reads.

    Two reasons are equal when their sentences are.
    """

    __slots__ = ("code",)

    code: ReasonCode

    def __new__(cls, code: ReasonCode, text: str) -> Self:
        """Return a sentence with its code."""
        reason = super().__new__(cls, text)
        reason.code = code
        return reason

    def __getnewargs__(self) -> tuple[ReasonCode, str]:  # type: ignore[override] # for copies
        return self.code, str(self)


def code_of(reason: Reason | None) -> ReasonCode | None:
    """Return the code of a reason; None of an ordinary start."""
    return reason.code if reason is not None else None
