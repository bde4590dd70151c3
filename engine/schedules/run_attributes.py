"""Search attributes and memo of runs: their checks, reserved names, and the fit to a namespace.

Temporal checks them when a run is started, which is too late for a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from engine.errors import question
from engine.schedules.validators import (
    Check,
    Shape,
    list_of,
    pattern,
    plain_json,
    refuse,
    show,
    wrong,
)

# --- search attributes ---

KEY_ATTRIBUTE: Final = "SchedKey"
"""The search attribute of the engine: the key of the schedule. Its kind is Keyword."""

MOST_ATTRIBUTES: Final = 50
_LONGEST: Final = 255
"""Characters of a text: the database of a Temporal server holds no longer keyword."""
_MOST_TEXTS: Final = 50
_WIDEST: Final = 2**63
"""Temporal's numbers have 64 bits."""

_NAME: Final = r"[A-Za-z][A-Za-z0-9_.-]{0,63}"
_NAME_HINT: Final = "use 1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-', beginning with a letter"
_OF_TEMPORAL: Final = frozenset(
    {
        "BatcherNamespace",
        "BatcherUser",
        "BinaryChecksums",
        "BuildIds",
        "CloseTime",
        "ExecutionDuration",
        "ExecutionStatus",
        "ExecutionTime",
        "HistoryLength",
        "HistorySizeBytes",
        "ParentRunId",
        "ParentWorkflowId",
        "RootRunId",
        "RootWorkflowId",
        "RunId",
        "StartTime",
        "StateTransitionCount",
        "TaskQueue",
        "VisibilityTimestamp",
        "WorkflowId",
        "WorkflowType",
    }
)
"""What Temporal itself writes; so are names that begin with ``Temporal``."""

_KINDS: Final[Mapping[type, tuple[str, ...]]] = {
    str: ("Keyword", "Text", "Datetime"),
    bool: ("Bool",),
    int: ("Int", "Double"),
    float: ("Double",),
    list: ("KeywordList",),
}
"""Kinds of search attributes that hold a value of each type; the first is the usual one."""

_EXAMPLE: Final = "{Region: eu-west, Attempts: 3}"


def is_reserved(name: str) -> bool:
    """Return whether a search attribute is written by Temporal or by the engine."""
    return name == KEY_ATTRIBUTE or name in _OF_TEMPORAL or name.startswith("Temporal")


def _attributes(given: Any) -> Any:
    if not isinstance(given, Mapping):
        raise wrong("searchAttributes", given, f"write a mapping, for example {_EXAMPLE}")
    if len(given) > MOST_ATTRIBUTES:
        message = f"searchAttributes has {len(given):,} names"
        raise refuse(message, f"write at most {MOST_ATTRIBUTES}")
    for name, value in given.items():
        _check_name(name)
        _check_value(name, value)
    return {
        name: list(value) if isinstance(value, list | tuple) else value
        for name, value in given.items()
    }


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise wrong("a search attribute", name, _NAME_HINT)
    if name == KEY_ATTRIBUTE:
        raise refuse(f"search attribute {name} is written by the engine", "remove it")
    if is_reserved(name):
        raise refuse(f"search attribute {name} is written by Temporal", "choose another name")


def _check_value(name: str, value: object) -> None:
    what = f"search attribute {name}"
    texts = value if isinstance(value, list | tuple) else [value]
    if isinstance(value, list | tuple) and not all(isinstance(each, str) for each in value):
        raise refuse(f"{what} is a list of other values than texts", "write texts, as [a, b]")
    if len(texts) > _MOST_TEXTS:
        raise refuse(f"{what} has {len(texts):,} texts", f"write at most {_MOST_TEXTS}")
    for each in texts:
        if isinstance(each, str) and (len(each) > _LONGEST or not each.isprintable()):
            raise wrong(what, each, f"write at most {_LONGEST} printable characters")
    if type(value) not in (*_KINDS, tuple):
        raise wrong(what, value, "write a text, a number, true, false or a list of texts")
    if isinstance(value, int | float) and not -_WIDEST <= value < _WIDEST:
        raise wrong(what, value, "write a number of at most 64 bits")


_ANY_VALUE: Final[list[Shape]] = [
    {"type": ["string", "number", "boolean"]},
    {**list_of({"type": "string"}), "maxItems": _MOST_TEXTS},
]
ATTRIBUTES: Final = Check(
    _attributes,
    shape={
        "type": "object",
        "propertyNames": pattern(f"^{_NAME}$", f"{_NAME_HINT.capitalize()}."),
        "additionalProperties": {"anyOf": _ANY_VALUE},
        "maxProperties": MOST_ATTRIBUTES,
    },
)


def usual_kind(value: object) -> str:
    """Return the kind of search attribute that a checked value most likely is of."""
    return _KINDS[type(value)][0]


def attribute_fault(name: str, value: object, kinds: Mapping[str, str]) -> tuple[str, str] | None:
    """Return why a namespace would refuse a search attribute, and the hint; None if it fits.

    Args:
        name: its name.
        value: a checked value.
        kinds: the search attributes of the namespace, with their kinds as Temporal writes them.
    """
    kind = kinds.get(name)
    if kind is None:
        registered = f"--name {name} --type {usual_kind(value)}"
        message = f"the namespace has no search attribute {name}"
        create = f"register it: `temporal operator search-attribute create {registered}`"
        same = [each for each in kinds if each.lower() == name.lower()]
        return message, question(*same, otherwise=create)
    if kind not in _KINDS[type(value)]:
        return f"search attribute {name} is of kind {kind}, and not {show(value)}", "correct it"
    if kind == "Datetime" and moment_of(value) is None:
        message = f"search attribute {name} is a moment, and not {show(value)}"
        return message, 'write it with its offset, as "2027-01-01T09:00:00Z"'
    return None


def moment_of(value: object) -> datetime | None:
    """Return the instant that a text names, or None."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment and moment.tzinfo else None


# --- memo ---

_MOST_FIELDS: Final = 50
_MOST_BYTES: Final = 16_384
"""Bytes of JSON: a server keeps the memo with each run, and Temporal Cloud takes 40 KB."""
_DEEP: Final = 20
_OWN: Final = "sched"


def _memo(given: Any) -> Any:
    if not isinstance(given, Mapping):
        raise wrong("memo", given, "write a mapping, for example {runbook: wiki/billing}")
    for name in given:
        if not isinstance(name, str) or not re.fullmatch(_NAME, name):
            raise wrong("a field of memo", name, _NAME_HINT)
        if name == _OWN or name.startswith(f"{_OWN}."):
            raise refuse(f"memo.{name} is written by the engine", "choose another name")
    if len(given) > _MOST_FIELDS:
        raise refuse(f"memo has {len(given):,} fields", f"write at most {_MOST_FIELDS}")
    kept = plain_json(dict(given), _DEEP, "memo")
    size = len(json.dumps(kept))
    if size > _MOST_BYTES:
        raise refuse(f"memo has {size:,} bytes", f"write at most {_MOST_BYTES:,}, or use input")
    return kept


MEMO: Final = Check(
    _memo,
    shape={
        "type": "object",
        "propertyNames": pattern(f"^{_NAME}$", f"{_NAME_HINT.capitalize()}."),
        "maxProperties": _MOST_FIELDS,
    },
)
