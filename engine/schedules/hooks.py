"""Webhooks and the names of events: what a file or an application declares to be called."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from engine.errors import ScheduleError, did_you_mean
from engine.schedules.validators import Check, What, list_of, pattern, refuse, shorten

# --- names of events ---

EventType = Literal[
    "arrived",
    "completed",
    "failed",
    "cancelled",
    "terminated",
    "timed_out",
    "skipped",
    "expired",
    "rejected",
    "unvouched",
    "created",
    "changed",
    "paused",
    "resumed",
    "retired",
    "missed",
    "dead",
]
"""Types of events: a start, ends, denials, changes of the schedule.

The last two come with others: ``missed`` with a denial, ``dead`` with an end.
"""

EVENT_TYPES: Final[tuple[EventType, ...]] = get_args(EventType)

ALL_EVENTS: Final = "schedule.*"
"""The pattern of every name of an event."""

_EVENT_PATTERN: Final = r"[a-z0-9_.*-]{1,250}"
_KEY_PATTERN: Final = r"[a-z0-9._*-]{1,200}"
_MOST_PATTERNS: Final = 100
_LONGEST_URL: Final = 2000
_URL_HINT: Final = "write an address as https://example.com/hook"
_SECRET_HINT: Final = "write ${env:NAME}, and set NAME where the workers run"
_SECRET: Final = r"\$\{env:([A-Za-z_][A-Za-z0-9_]{0,127})\}"


def event_patterns(value: Any, what: str = "events") -> tuple[str, ...]:
    """Return patterns of names of events, in which ``*`` stands for any text.

    Raises:
        PydanticCustomError: they are no patterns, or one can match no event.
    """
    found = _texts(value, what, '["schedule.arrived"]')
    for each in found:
        if not re.fullmatch(_EVENT_PATTERN, each):
            raise refuse(f"{what} has {shorten(each)}", "write a name as schedule.*.arrived")
        first, _, rest = each.partition(".")
        last = each.rpartition(".")[2]
        if "*" not in first and (first != "schedule" or not rest):
            raise refuse(f"no event is named {each}", f"write schedule.{last}")
        if "*" not in last and last not in EVENT_TYPES:
            hint = did_you_mean(last, EVENT_TYPES, f"write {', '.join(EVENT_TYPES)}")
            raise refuse(f"no event is named {each}", hint)
    return found


def key_patterns(value: Any, what: str = "keys") -> tuple[str, ...]:
    """Return patterns of schedule keys, in which ``*`` stands for any text; none are all.

    Raises:
        PydanticCustomError: they are no patterns of keys.
    """
    found = _texts(value, what, '["billing.*"]')
    for each in found:
        if not re.fullmatch(_KEY_PATTERN, each):
            raise refuse(f"{what} has {shorten(each)}", "write keys, with * for any text")
    return found


@contextmanager
def refusals() -> Iterator[None]:
    """Raise the refusal of a check within the block as a ``ScheduleError``, for applications."""
    try:
        yield
    except PydanticCustomError as error:
        context = dict(error.context or {})
        raise ScheduleError(context["message"], hint=context["hint"]) from None


def _texts(value: Any, what: str, example: str) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise refuse(f"{what} is no list of texts", f"write {example}")
    if not given or len(given) > _MOST_PATTERNS:
        raise refuse(f"{what} has {len(given)} patterns", f"write 1 to {_MOST_PATTERNS}")
    return tuple(dict.fromkeys(given))


# --- webhooks ---


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook: an address that gets events.

    Attributes:
        url: http or https; it may have a secret in its path, so only ``label`` and ``place`` are
            shown.
        secret: the environment variable of the workers that has the secret of the signatures.
        events: patterns of names of events.
        keys: patterns of keys of schedules; none are all of the project.
    """

    url: str
    secret: str
    events: tuple[str, ...] = (ALL_EVENTS,)
    keys: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Name of the hook in its project: its host, and a digest of its address."""
        host = urlsplit(self.url).hostname or ""
        return f"{host}#{hashlib.sha256(self.url.encode()).hexdigest()[:8]}"

    @property
    def place(self) -> str:
        """The address without its path."""
        return place_of_url(self.url)

    def __str__(self) -> str:
        of = f" of {', '.join(self.keys)}" if self.keys else ""
        return f"{self.place} gets {', '.join(self.events)}{of}"

    @classmethod
    def of(
        cls, url: Any, *, secret: Any, events: Any = None, keys: Any = None, what: str = "the hook"
    ) -> Hook:
        """Return a checked hook.

        Raises:
            ScheduleError: a field is invalid; the text has neither address nor secret.
        """
        given = {"url": url, "secret": secret, "events": events, "keys": keys}
        checked: dict[str, Any] = {}
        with refusals():
            for name, value in given.items():
                if value is not None or name in HOOK_NEEDS:
                    checked[name] = HOOK_FIELDS[name].of(value, f"{name} of {what}")
        return cls(**checked)


def place_of_url(url: str) -> str:
    """Return an address without what may be secret: scheme, host and port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{shown}{port}/…"


def _url(value: Any, what: What) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.isprintable():
        raise refuse(f"the {what} is no address", _URL_HINT)
    try:
        parts = urlsplit(value)
        sound = parts.hostname and parts.port != 0
    except ValueError:
        raise refuse(f"the {what} is no address", _URL_HINT) from None
    if not sound or " " in value or "\\" in value or len(value) > _LONGEST_URL:
        raise refuse(f"the {what} is no address", _URL_HINT)
    if parts.scheme not in {"http", "https"}:
        raise refuse(f"the {what} is neither http nor https", _URL_HINT)
    if "@" in parts.netloc:
        raise refuse(f"the {what} has a user", "remove it; the signature proves the sender")
    if parts.fragment:
        raise refuse(f"the {what} has a fragment", "remove the # and what follows")
    return value


def _secret(value: Any, what: What) -> str:
    # Never shown: it may be the secret itself.
    found = re.fullmatch(_SECRET, value) if isinstance(value, str) else None
    if found is None:
        raise refuse(f"the {what} is not the name of a variable", _SECRET_HINT)
    return found[1]


HOOK_NEEDS: Final = ("url", "secret")
HOOK_FIELDS: Final[Mapping[str, Check]] = {
    "url": Check(
        _url, shape=pattern("^https?://", "Write an address as https://example.com/hook.")
    ),
    "secret": Check(
        _secret,
        shape=pattern(
            rf"^{_SECRET}$",
            "Write ${env:NAME}: the workers' variable with the secret.",
            "${env:HOOK_SECRET}",
        ),
    ),
    "events": Check(
        event_patterns,
        shape=list_of(
            pattern(f"^{_EVENT_PATTERN}$", "Write a name, with * for any text.", ALL_EVENTS)
        ),
    ),
    "keys": Check(
        key_patterns,
        shape=list_of(
            pattern(f"^{_KEY_PATTERN}$", "Write keys, with * for any text.", "billing.*")
        ),
    ),
}
"""Fields of a hook in a file, each with its check; `HOOK_NEEDS` are those that it must have."""

HOOK_EXAMPLE: Final = "[{url: https://example.com/hook, secret: '${env:HOOK_SECRET}'}]"
