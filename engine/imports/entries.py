"""Entries of an import: schedules for a file, and each way in which they differ from their source.

A reader of a source makes a `Draft` for each thing that it finds and hands it to the `Collector`
with a function that fills it. `SourceFields` reads an entry and remembers the fields that were
taken; the others are named as missing, so that no reader drops a field that it does not know.
`NotExpressed` makes a `RefusedEntry` of an entry, as any other exception does; the others go on.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from engine.errors import Code, ImportUnreadable, ScheduleError, did_you_mean
from engine.schedules import FIELDS, NESTED, Schedule, format_duration

# --- values ---

RemarkKind = Literal["note", "difference", "missing"]
"""A choice that the import made; another meaning; a part for which a schedule has no field."""

Aspect = Literal[
    "action",
    "catch-up",
    "day-rule",
    "dst",
    "ids",
    "jitter",
    "key",
    "limits",
    "output",
    "overlap",
    "pause",
    "phase",
    "retry",
    "timezone",
    "twice",
]
"""What a remark is about; docs/coming-from.md explains each."""

ASPECTS: Final = get_args(Aspect)


class Remark(NamedTuple):
    """A statement about an entry, or about all of a source."""

    kind: RemarkKind
    aspect: Aspect
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.aspect}): {self.sentence}"


@dataclass(frozen=True, slots=True)
class ImportedEntry:
    """One schedule of the file.

    Attributes:
        place: where the source has it: ``line 3``, or a name.
        text: what stands there, in one line.
        fields: the fields of the schedule, by their names in a file.
    """

    place: str
    text: str
    fields: Mapping[str, Any]
    remarks: tuple[Remark, ...]

    @property
    def key(self) -> str:
        """The key of the schedule."""
        return str(self.fields["key"])


@dataclass(frozen=True, slots=True)
class RefusedEntry:
    """Entry that no schedule can express; ``code`` is that of a problem."""

    place: str
    text: str
    sentence: str
    code: Code = Code.IMPORT_NOT_EXPRESSED


@dataclass(frozen=True, slots=True)
class Import:
    """Schedules and refusals that were read from a source.

    Attributes:
        source: the source in a few words, for the head of the file.
        remarks: those that concern all entries.
    """

    source: str
    entries: tuple[ImportedEntry, ...]
    refused: tuple[RefusedEntry, ...]
    remarks: tuple[Remark, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every entry, and every part of each, could be expressed."""
        remarks = (remark for each in self.entries for remark in each.remarks)
        lost = any(remark.kind == "missing" for remark in (*self.remarks, *remarks))
        return not (self.refused or lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of every import.

    Attributes:
        now: the moment of the import; changes of clocks are looked for from here on.
        timezone: the zone of sources that name none.
        workflow: the workflow of all entries, in place of the one that the source proposes.
        shadow: whether each schedule gets ``mode: shadow``.
    """

    now: datetime
    timezone: str = "UTC"
    workflow: str | None = None
    shadow: bool = False


class NotExpressed(Exception):
    """No schedule means the same; the message says what has no counterpart."""


# --- what an entry has ---

_MOST_OF_A_TEXT: Final = 160
_SCALARS: Final = (str, bytes, int, float, list, tuple, set, frozenset)


class SourceFields:
    """Fields that an entry has in its source.

    Absent means default, and a value that is empty counts as absent.

    Args:
        of: begins the name of a field in a remark: ``spec.``.
        value: a mapping, or an object, whose public attributes are its fields. None has none.

    Raises:
        NotExpressed: the value has no fields.
    """

    def __init__(self, of: str, value: Any) -> None:
        self._of, self._fields, self._taken = of, _fields_of(of, value), set[str]()

    def take(
        self, name: str, default: Any = None, *, kind: type | tuple[type, ...] = object
    ) -> Any:
        """Return the value of a field, which is thereby read.

        Raises:
            NotExpressed: the value is not of this kind.
        """
        self._taken.add(name)
        value = self._fields.get(name)
        if _is_empty(value):
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kind) or (isinstance(value, bool) and int in kinds):
            names = " or ".join(_KINDS.get(each, each.__name__) for each in kinds)
            raise NotExpressed(f"{self._of}{name} is {shown(value)}, which is no {names}")
        return value

    def has(self, name: str) -> bool:
        """Whether the source has this field, be it empty."""
        return name in self._fields

    def pass_over(self, *names: str) -> None:
        """Leave out fields that a remark for all entries speaks of."""
        self._taken.update(names)

    def left(self) -> Iterator[str]:
        """Yield the fields that were not taken, as ``spec.suspend: true``."""
        for name, value in self._fields.items():
            if name not in self._taken and not _is_empty(value):
                yield f"{self._of}{name}: {shown(value)}"


_KINDS: Final[Mapping[type, str]] = {
    bool: "true or false",
    dict: "mapping",
    int: "whole number",
    float: "number",
    list: "list",
    str: "text",
    tuple: "list",
}


def _fields_of(of: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {str(name): one for name, one in value.items()}
    if isinstance(value, _SCALARS):
        what = of.rstrip(".") or "the entry"
        raise NotExpressed(f"{what} is {shown(value)}, which has no fields")
    if is_dataclass(value):
        names = [each.name for each in fields(value)]
    else:
        slots = [getattr(each, "__slots__", ()) for each in type(value).__mro__]
        several = [each for one in slots for each in ((one,) if isinstance(one, str) else one)]
        names = [*several, *getattr(value, "__dict__", {})]
    public = [name for name in names if not name.startswith("_")]
    return {name: getattr(value, name) for name in public if hasattr(value, name)}


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str | Mapping | list | tuple) and not value)


def shown(value: Any) -> str:
    """Return a value as a remark shows it: JSON, or its text."""
    try:
        return one_line(json.dumps(value))
    except (TypeError, ValueError):
        return one_line(str(value))


def printable(text: str) -> str:
    """Return a text as it stands in a comment: one line, without what no file may hold."""
    return "".join(sign if sign.isprintable() else " " for sign in " ".join(text.split()))


def one_line(text: str) -> str:
    """Return a printable text that is not too long."""
    plain = printable(text)
    return plain if len(plain) <= _MOST_OF_A_TEXT else f"{plain[:_MOST_OF_A_TEXT]}…"


def as_input(**given: Any) -> dict[str, Any]:
    """Return an input as JSON, without what is empty.

    Raises:
        NotExpressed: a part of it is no JSON.
    """
    kept = {name: value for name, value in given.items() if not _is_empty(value)}
    try:
        read: dict[str, Any] = json.loads(json.dumps(kept, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotExpressed(f"an argument is no JSON: {error}") from None
    return read


def resolve(found: Any, reference: str, hint: str) -> Any:
    """Return what an entry refers to.

    Raises:
        NotExpressed: it was not found.
    """
    if found is None:
        raise NotExpressed(f"{reference} is missing; {hint}")
    return found


# --- drafts ---

AT_ANY_AGE: Final = timedelta(days=365)
"""Catch-up window for sources that start a missed run however late."""
SHORTEST_GRACE: Final = timedelta(seconds=10)
"""A shorter grace would lose windows to a restart of a worker."""
_OUR_GRACE: Final = timedelta(seconds=60)
_NOT_IN_A_KEY: Final = re.compile(r"[^a-z0-9._-]+")
_MOST_OF_A_KEY: Final = 200


@dataclass(slots=True)
class Draft:
    """Schedule in the making.

    Attributes:
        name: what the source calls it; the key is made of it.
        named_in: the field of the metadata that has this name where the key is another one.
    """

    place: str
    text: str
    name: str = ""
    named_in: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    opened: list[SourceFields] = field(default_factory=list)

    def open(self, value: Any, of: str = "") -> SourceFields:
        """Return the fields of the entry, or of a part of it; all have to be taken."""
        given = SourceFields(of, value)
        self.opened.append(given)
        return given

    def note(self, aspect: Aspect, sentence: str) -> None:
        """State a choice of the import."""
        self.remarks.append(Remark("note", aspect, printable(sentence)))

    def differs(self, aspect: Aspect, sentence: str) -> None:
        """State another meaning than in the source."""
        self.remarks.append(Remark("difference", aspect, printable(sentence)))

    def lacks(self, aspect: Aspect, sentence: str) -> None:
        """State a part of the source that is not in the schedule."""
        self.remarks.append(Remark("missing", aspect, printable(sentence)))

    def put(self, name: str, value: Any, aspect: Aspect, of: str) -> None:
        """Set a field, ``retry`` or ``timeout.run``, if the file has it; ``of`` is the source's.

        Fields of the file come and go with its version, so this asks the model.
        """
        outer, _, inner = name.partition(".")
        if inner and inner in NESTED[outer].model_fields:
            self.fields.setdefault(outer, {})[inner] = value
        elif not inner and outer in FIELDS:
            self.fields[outer] = value
        else:
            self.lacks(aspect, f"{of} has no counterpart in a schedule")

    def years(self, years: Collection[int]) -> None:
        """Set ``start`` and ``end`` for the years in which a schedule fires.

        Raises:
            NotExpressed: they have gaps, or stand beside a start or an end.
        """
        first, last = min(years), max(years)
        if len(set(years)) != last - first + 1:
            raise NotExpressed("its years have gaps: a schedule has one start and one end")
        if {"start", "end"} & self.fields.keys():
            raise NotExpressed("it has years beside a start or an end")
        self.fields |= {"start": f"{first}-01-01", "end": f"{last}-12-31"}

    def every(self, interval: int, *, start: str, counts: str) -> None:
        """Set an interval that the source counts from the start, if there is one.

        Args:
            interval: in milliseconds.
            start: what the source calls the start.
            counts: the source, and from when it counts without a start.
        """
        self.fields["everyMs"] = interval
        if (begins := self.fields.get("start")) is None:
            text = f"{counts}; an interval counts from 1970-01-01T00:00:00Z"
            self.differs("phase", text)
            return
        since = datetime.fromisoformat(begins) - datetime(1970, 1, 1, tzinfo=UTC)
        if offset := since // timedelta(milliseconds=1) % interval:
            self.fields["offsetMs"] = offset
            self.note("phase", f"offsetMs keeps the phase of {start} {begins}")

    def catch_up(self, age: timedelta | None, *, of: str, policy: str = "latest") -> None:
        """Set what becomes of missed windows.

        Args:
            age: how late the source still starts one; None is at any age.
            of: the setting of the source, for the remark.
            policy: ``latest`` or ``all``, for windows that are not too old.
        """
        if age is not None and age <= _OUR_GRACE:
            grace = max(age, SHORTEST_GRACE)
            if grace != age:
                self.differs(
                    "catch-up",
                    f"{of} starts nothing later than {format_duration(age)}; here it may be "
                    f"{format_duration(grace)} late",
                )
            self.fields |= {"catchUp": {"policy": "none"}, "grace": format_duration(grace)}
            return
        window = age if age is not None else AT_ANY_AGE
        if age is None:
            self.differs(
                "catch-up", f"{of} starts a missed run at any age; here up to {window.days}d"
            )
        self.fields["catchUp"] = {"policy": policy, "window": format_duration(window)}

    def jitter(self, length: timedelta, *, of: str) -> None:
        """Set ``spread`` for a random delay of up to ``length``."""
        every = self.fields.get("everyMs")
        most = timedelta(milliseconds=every) if every else length
        self.fields["spread"] = format_duration(min(length, most))
        self.differs("jitter", f"{of} draws each delay anew; spread is the same for every window")


class Collector:
    """Collector of the entries of one source; keys become valid and unique, schedules are checked.

    Args:
        options: those of the import.
        workflow: the workflow that the source proposes.
    """

    def __init__(self, options: Options, workflow: str = "") -> None:
        self.options, self._workflow = options, options.workflow or workflow
        self._keys: set[str] = set()
        self._entries: list[ImportedEntry] = []
        self._refused: list[RefusedEntry] = []

    def add(self, draft: Draft, fill: Callable[[Draft], None]) -> None:
        """Add the schedule that ``fill`` makes of the draft, or its refusal."""
        try:
            fill(draft)
            for left in [each for given in draft.opened for each in given.left()]:
                draft.lacks("action", f"{left} is not imported")
            self._entries.append(self._finished(draft))
        except (NotExpressed, ScheduleError) as error:
            self.refuse(draft, str(error))
        except Exception as error:  # noqa: BLE001 - the entry is not ours and may be anything
            self.refuse(draft, f"it cannot be read: {type(error).__name__}: {one_line(str(error))}")

    @property
    def found(self) -> int:
        """How many entries the source has."""
        return len(self._entries) + len(self._refused)

    def refuse(self, draft: Draft, sentence: str) -> None:
        """Add what no schedule can express."""
        refused = RefusedEntry(one_line(draft.place), one_line(draft.text), printable(sentence))
        self._refused.append(refused)

    def imported(self, source: str, *remarks: Remark) -> Import:
        """Return everything that was added."""
        said = tuple(each._replace(sentence=printable(each.sentence)) for each in remarks)
        return Import(printable(source), tuple(self._entries), tuple(self._refused), said)

    def _finished(self, draft: Draft) -> ImportedEntry:
        fields = {"workflow": self._workflow, **draft.fields}
        if self.options.workflow:
            fields["workflow"] = self.options.workflow
        fields = {"key": self._key(draft), **fields}
        if draft.named_in and fields["key"] != draft.name:
            fields["metadata"] = {draft.named_in: draft.name}
        Schedule.from_json(fields)
        self._keys.add(fields["key"])
        if self.options.shadow:
            fields["mode"] = "shadow"
        place = one_line(draft.place)
        return ImportedEntry(place, one_line(draft.text), fields, tuple(draft.remarks))

    def _key(self, draft: Draft) -> str:
        """Return a valid key that no other entry has, and note where it is not the name."""
        plain = _NOT_IN_A_KEY.sub("-", draft.name.lower()).strip("-").lstrip("._-")
        base = (plain or "schedule")[: _MOST_OF_A_KEY - 5]
        key = next(key for key in _numbered(base) if key not in self._keys)
        if key != draft.name:
            draft.note("key", f"{draft.name!r} is written {key}")
        return key


def _numbered(base: str) -> Iterator[str]:
    yield base
    number = 2
    while True:
        yield f"{base}-{number}"
        number += 1


# --- sources ---


def read_text(name: str) -> str:
    """Return the text of a file, or of standard input for ``-``.

    Raises:
        ImportUnreadable: there is no such file, or it is not text in UTF-8.
    """
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise ImportUnreadable(
            f"{name} cannot be read: {why}", hint="name a file, or - for stdin"
        ) from None


def load_object(name: str, example: str) -> Any:
    """Import ``module:attribute`` and return the attribute, which may have dots.

    The working directory is added to ``sys.path``.

    Raises:
        ImportUnreadable: the module cannot be imported, or has no such attribute.
    """
    module, _, path = name.partition(":")
    if not module or not path:
        raise ImportUnreadable(f"{name!r} names no object of a module", hint=f"write {example}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # code of the user, which may fail with anything
        raise ImportUnreadable(
            f"importing {module} failed: {type(error).__name__}: {error}",
            hint="run it where the application runs, with its packages",
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            hint = did_you_mean(part, dir(found), f"write {example}")
            raise ImportUnreadable(f"{module} has no {path!r}", hint=hint)
        found = getattr(found, part)
    return found
