"""Terms that schedules, planner and ledgers share: units, ids, policies, reasons, sealed inputs.

A fire's ``reason`` is a sentence for people; its reason code, from a closed list, is for code that
decides, counts or filters. The list is in docs/ledger.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, Self

from engine.errors import DefinitionUnreadable, nearest

# --- durations ---
# Durations in files: ``90s``, ``15m``, ``24h``, ``2d``, ``500ms``, ``1h30m``.

_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
# Each unit occurs at most once, the largest first, so that a text has one meaning.
_SHAPE = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,15}}){unit})?" for unit in _UNITS))

LONGEST = timedelta(days=36_525)
"""A hundred years. A longer duration is a typing error and would move instants off the calendar."""

_HOW = "write a number and a unit (ms, s, m, h, d), for example 90s, 15m or 1h30m"
_WORDED = re.compile(
    r"(?:rate\()?\s*(\d{1,6})\s*(?:(m)in|(s)ec|(h)r|(s)econd|(m)inute|(h)our|(d)ay|([smhd]))s?\s*\)?",
    re.ASCII | re.IGNORECASE,
)


def meant_duration(text: str) -> str | None:
    """Return what ``5 minutes``, ``rate(5 minutes)`` or ``@every 5m`` of other schedulers means."""
    text = text.strip().removeprefix("@every").strip()
    if text and _SHAPE.fullmatch(text):
        return text
    match = _WORDED.fullmatch(text)
    if match is None:
        return None
    number, *units = match.groups()
    return f"{int(number)}{next(filter(None, units)).lower()}"


def parse_duration(text: str) -> timedelta:
    """Return the duration that ``text`` means.

    Args:
        text: numbers with the units d, h, m, s, ms, largest first; no spaces, signs or fractions.

    Raises:
        ValueError: the text is not a duration, or exceeds a hundred years. The message is the hint.
    """
    match = _SHAPE.fullmatch(text)
    if not text or match is None:
        meant = meant_duration(text)
        raise ValueError(f"write {meant}" if meant else _HOW)
    length = timedelta(0)
    for unit, number in match.groupdict().items():
        # Compare before multiplying: timedelta would overflow before the limit is checked.
        if number is not None and int(number) > LONGEST / _UNITS[unit]:
            raise ValueError("write at most 36525d")
        length += int(number or 0) * _UNITS[unit]
    if length > LONGEST:
        raise ValueError("write at most 36525d")
    return length


def format_duration(length: timedelta) -> str:
    """Return the shortest text that ``parse_duration`` reads back as ``length``.

    Raises:
        ValueError: the duration is negative or finer than a millisecond.
    """
    rest, finer = divmod(length, _UNITS["ms"])
    if rest < 0 or finer:
        raise ValueError(f"{length!r} is not a whole number of milliseconds from 0 upwards")
    parts = []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size // _UNITS["ms"])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


# --- rates ---
# Rates in files: ``5/1m`` is five per minute, ``100/1s`` a hundred per second.

_RATE_SHAPE: Final = re.compile(r"([1-9][0-9]{0,8})/([0-9a-z]+)", re.ASCII)
_PER: Final = re.compile(r"([1-9][0-9]{0,8})\s*(?:/|per)\s*(.+)", re.ASCII)
_HOW_RATE: Final = "write a number and a duration, for example 5/1m"
_LONGEST: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Rate:
    """Number of starts per time, evenly spaced."""

    count: int
    per: timedelta

    def __str__(self) -> str:
        return f"{self.count}/{format_duration(self.per)}"

    @property
    def distance(self) -> timedelta:
        """The time from one start to the next."""
        return self.per / self.count

    @property
    def per_second(self) -> float:
        """Starts per second."""
        return self.count / self.per.total_seconds()


def parse_rate(text: str) -> Rate:
    """Return the rate that ``text`` means.

    Raises:
        ValueError: the text is not a rate, or its time exceeds a day; the message is the hint.
    """
    match = _RATE_SHAPE.fullmatch(text)
    try:
        per = parse_duration(match[2] if match else "")
    except ValueError:
        worded = _PER.fullmatch(text)
        meant = meant_duration(f"1 {worded[2]}") if worded else None
        how = f"write {worded[1]}/{meant}" if worded and meant else _HOW_RATE
        raise ValueError(how) from None
    if not timedelta(0) < per <= _LONGEST:
        raise ValueError("write a time of at most a day, for example 5/1m")
    return Rate(int(match[1] if match else 0), per)


# --- instants ---
# Instants are whole seconds or milliseconds since 1970-01-01T00:00:00Z. Every fire lies in
# ``EARLIEST <= t < HORIZON``: 1970 to 2100, both inclusive. Nothing fires outside of it, because
# zone rules are guesses there and a bucket could become negative.

MINUTE_MS: Final = 60_000
EARLIEST: Final = 0
HORIZON: Final = 4_133_980_800  # 2101-01-01T00:00:00Z
FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 2100
SECONDS_PER_DAY: Final = 86_400

TICK: Final = timedelta(microseconds=1)
"""The resolution of instants here and in PostgreSQL: ``t - TICK`` is the last one before ``t``."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def epoch_seconds(instant: datetime) -> int:
    """Return ``instant`` in seconds since the epoch, floored.

    Raises:
        ValueError: ``instant`` is naive; its meaning would depend on the machine.
    """
    since = _since_epoch(instant)
    return since.days * SECONDS_PER_DAY + since.seconds


def in_ms(length: timedelta) -> int:
    """Return a length in milliseconds, rounded."""
    return round(length / _MILLISECOND)


def epoch_ms(instant: datetime) -> int:
    """Return ``instant`` in milliseconds since the epoch, floored.

    Raises:
        ValueError: ``instant`` is naive.
    """
    return _since_epoch(instant) // _MILLISECOND


def from_seconds(seconds: int) -> datetime:
    """Return the UTC datetime that lies ``seconds`` after the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


def from_ms(milliseconds: int) -> datetime:
    """Return the UTC datetime that lies ``milliseconds`` after the epoch."""
    return EPOCH + milliseconds * _MILLISECOND


def _since_epoch(instant: datetime) -> timedelta:
    try:
        # The subtraction of two zone-aware datetimes is exact and honours ``fold``.
        return instant - EPOCH
    except TypeError:
        raise ValueError(
            f"{instant!r} is naive; give it a time zone, for example datetime(..., tzinfo=UTC)"
        ) from None


def utc_text(instant: datetime) -> str:
    """Return an instant as messages show it: ``2027-01-01 09:00:00Z``."""
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def iso_text(instant: datetime) -> str:
    """Return an instant as commands take it: ``2027-01-01T09:00:00Z``."""
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"


def exact_text(instant: datetime) -> str:
    """Return an instant as JSON keeps it: ``2027-01-01T09:00:00.123456Z``."""
    in_utc = instant if instant.tzinfo is UTC else instant.astimezone(UTC)
    return f"{in_utc.isoformat()[:-6]}Z"


def instant_text(instant: datetime | None) -> str | None:
    """Return an instant as tables and pages show it: with milliseconds unless they are zero."""
    if instant is None:
        return None
    precision = "milliseconds" if instant.microsecond else "seconds"
    return instant.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


def first_of(names: Sequence[str], most: int) -> str:
    """Return names as messages list them: ``a, b and 3 more``."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# --- windows and workflow ids ---
# Workflow ids name windows, manual triggers, starts by applications, reruns and handler runs.

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

STARTS: Final = "@"
"""What the key of an application's starts begins with: ``@<workflow>``. No schedule's key does."""

_WORKFLOW = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}"
_STARTED = re.compile(rf"(?P<name>{_WORKFLOW})(?:@[0-9.]+)?")
# The id may have colons; as few characters as possible, so that the suffixes are read as such.
_START_ID = re.compile(
    rf"sched:(?P<key>{STARTS}{_WORKFLOW}):(?P<start_id>.+?){_RERUN}(?::(?P<handler>dead|undo))?"
)
_NUMBERS: Final = ("bucket", "series", "rerun")
_LONGEST_ID: Final = 200
"""Characters of a start's id. With the longest workflow name it fits Temporal's 1000 bytes."""


def starts_key(workflow: str) -> str | None:
    """Return the key of the starts of a workflow, for ``name`` and ``name@version`` the same.

    None if it is neither.
    """
    match = _STARTED.fullmatch(workflow)
    return STARTS + match["name"] if match else None


def start_workflow_id(key: str, start_id: str) -> str | None:
    """Return the workflow id of a start; None if the id is invalid.

    An id has 1 to 200 printable ASCII characters, and does not end like the engine's own suffixes
    (``:rerun:<n>``, ``:dead``, ``:undo``), so that the workflow id parses back.
    """
    if len(start_id) > _LONGEST_ID or not (start_id.isascii() and start_id.isprintable()):
        return None
    workflow_id = f"sched:{key}:{start_id}"
    parsed = parse_workflow_id(workflow_id)
    return workflow_id if parsed == ParsedId(key, start_id=start_id) else None


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
        key: the schedule's key, or that of an application's starts.
        bucket: the window's number; None for a manual trigger or a start.
        series: the series; None where the id has no suffix.
        request_id: the name of a manual trigger; None for a window.
        rerun: the number of the rerun; None for the window's own run.
        handler: ``dead`` or ``undo``, for a handler of the run that the rest of the id names.
        start_id: the id that an application gave to its start; None for the runs of a schedule.
    """

    key: str
    bucket: int | None = None
    series: int | None = None
    request_id: str | None = None
    rerun: int | None = None
    handler: str | None = None
    start_id: str | None = None


def parse_workflow_id(text: str) -> ParsedId | None:
    """Return the parts of ``text``, or None if it is not one of the engine's ids."""
    match = _START_ID.fullmatch(text) or _ID.fullmatch(text)
    if match is None:
        return None
    parts: dict[str, Any] = match.groupdict()
    return ParsedId(**parts | {name: int(parts[name]) for name in _NUMBERS if parts.get(name)})


def is_suffixed(workflow_id: str) -> bool:
    """Return whether the id of a window's run names its series."""
    parsed = parse_workflow_id(workflow_id)
    return parsed is not None and parsed.series is not None


# --- workflow type versions ---


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
    return next(iter(nearest(workflow, names)), None)


def _is_dotted(version: str) -> bool:
    return all(part.isdecimal() for part in version.split("."))


# --- shares ---
# What takes turns when more is due than can be started: tenants, and the workflows of each. The
# one-shots of a workflow are apart: they lose nothing by waiting, others lose windows.

_LONGEST_TENANT: Final = 100
_BETWEEN: Final = "\x1f"


def share_of(tenant: str, workflow: str, *, once: bool = False) -> str:
    """Return the share of a workflow, in any version, for a tenant; ``once``: of its one-shots."""
    names = tenant[:_LONGEST_TENANT].replace(_BETWEEN, " "), workflow.partition("@")[0]
    return _BETWEEN.join((*names, "once") if once else names)


def tenant_of(share: str) -> str:
    """Return the tenant of a share; empty for schedules without one."""
    return share.partition(_BETWEEN)[0]


def share_text(share: str) -> str:
    """Return a share as words."""
    tenant, workflow, *once = share.split(_BETWEEN)
    text = f"one-shots of workflow {workflow}" if once else f"workflow {workflow}"
    return f"{text} of tenant {tenant}" if tenant else text


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


def storable(text: str) -> str:
    """Return a text with a sign in the place of each character that ``is_storable`` refuses."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


FirstFire = Literal["now", "next"]

Mode = Literal["live", "shadow"]

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
    "user",
    "overlap",
    "queue_full",
    "excluded",
    "coalesced",
    "overload",
    "dependency",
    "paused",
    "disabled",
    "retired",
    "shadow",
    "limit",
    "expired",
    "first_sight",
    "caught_up",
    "unknown_workflow",
    "foreign_run",
    "refused",
    "payload_too_large",
    "may_have_run",
]


CHOSEN: Final[frozenset[ReasonCode]] = frozenset(
    {"user", "excluded", "paused", "disabled", "retired", "shadow", "limit"}
)
"""Reasons of a skip that a file or an operator chose."""

STOOD_FOR: Final[frozenset[ReasonCode]] = frozenset({"coalesced", "overload"})
"""Reasons of a skip of a window for which a newer one runs."""


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


# --- sealed inputs ---
# What a team's codec has encoded, as definitions, fires and ledgers carry it. The runtime alone
# seals and opens.

NATIVE: Final = "temporalSchedule"
"""Name in ``metadata`` of the native schedule that a schedule replaces; by default its own key."""

SEALED_INPUT: Final = "sealedInput"
"""Name of a sealed input in the JSON of a definition. Code that does not know it cannot read the
definition, and so never takes an envelope for an input."""

SEALED: Final = "sealed"
"""The word in place of an input that cannot be read here."""

_SEALED_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Sealed:
    """One input, encoded. Those of equal inputs of a project are equal.

    Attributes:
        payload: Temporal's payload as the codec wrote it, in base64.
        digest: keyed digest of the plain input, in hex; see ``engine.runtime.sealing``.
    """

    payload: str = field(compare=False)
    digest: str

    def to_json(self) -> dict[str, Any]:
        """Return the envelope, as it is stored."""
        return {"v": _SEALED_VERSION, "payload": self.payload, "digest": self.digest}

    @classmethod
    def from_json(cls, envelope: Mapping[str, Any]) -> Self:
        """Read an envelope.

        Raises:
            DefinitionUnreadable: a later version wrote it.
        """
        if envelope.get("v") != _SEALED_VERSION:
            raise DefinitionUnreadable(
                "its input is sealed in a way that this version does not know",
                hint="use the version that wrote it",
            )
        return cls(envelope["payload"], envelope["digest"])


def readable(value: Any) -> Any:
    """Return an input as people read it: ``sealed`` in place of one that is."""
    return SEALED if isinstance(value, Sealed) else value


def readable_definition(dump: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a definition as people read it: ``sealed`` in place of such an input."""
    return {
        ("input" if name == SEALED_INPUT else name): SEALED if name == SEALED_INPUT else value
        for name, value in dump.items()
    }
