"""Search attributes of runs: those that a schedule asks for, and those that its namespace takes.

A namespace without an attribute, or with one of another kind, refuses the whole start. That costs
no window: what does not fit is left out, which is reported once for each and counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair

from engine.errors import Code
from engine.runtime.events import Alert
from engine.runtime.temporal_client import read_search_attributes
from engine.schedules import KEY_ATTRIBUTE, misfit, moment_of, usual_kind
from engine.telemetry.instruments import ATTRIBUTES_LEFT_OUT, measures

Pairs = Sequence[SearchAttributePair[Any]]
OnAlert = Callable[[Alert], None]

_FRESH: Final = 300.0
"""Seconds for which the attributes of the namespace are used as they were read."""
_REFUSED_FOR: Final = 30.0
"""Seconds for which an attribute is left out that was refused although the namespace has it.

Its servers need a while before they all know a new one.
"""
_KEYS: Final[Mapping[str, Callable[[str], SearchAttributeKey[Any]]]] = {
    "Keyword": SearchAttributeKey.for_keyword,
    "Text": SearchAttributeKey.for_text,
    "Datetime": SearchAttributeKey.for_datetime,
    "Bool": SearchAttributeKey.for_bool,
    "Int": SearchAttributeKey.for_int,
    "Double": SearchAttributeKey.for_float,
    "KeywordList": SearchAttributeKey.for_keyword_list,
}
_UNEXPLAINED: Final = "its servers refuse it"


class RunAttributes:
    """Search attributes that one replica sends.

    Args:
        client: that of the starts.
        patience: how long a look at the namespace may take.
        on_alert: receives an alert for each attribute that is left out.
    """

    def __init__(self, client: Client, patience: timedelta, on_alert: OnAlert) -> None:
        self._client, self._patience, self._emit = client, patience, on_alert
        self._kinds: Mapping[str, str] | None = None
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self._refused: dict[str, float] = {}
        self._told: set[str] = set()

    async def read(self) -> None:
        """Read which search attributes the namespace has; an unread list stays as it was."""
        found = await read_search_attributes(self._client, self._patience)
        self._kinds = self._kinds if found is None else found
        self._read_at = time.monotonic()
        self._told = {name for name in self._told if name not in (self._kinds or {})}

    def of(self, key: str | None, wanted: Mapping[str, Any]) -> Pairs:
        """Return what to send with a start, as far as the namespace is known to take it.

        Args:
            key: the key of the schedule, for ``SchedKey``; None leaves that out.
            wanted: the ``searchAttributes`` of the schedule.
        """
        self._read_again()
        own = {} if key is None or not self._takes(KEY_ATTRIBUTE, key) else {KEY_ATTRIBUTE: key}
        kept = {name: value for name, value in wanted.items() if self._takes(name, value)}
        self._leave_out(key, {name: wanted[name] for name in wanted if name not in kept})
        return [self._pair(name, value) for name, value in {**own, **kept}.items()]

    async def fewer(self, sent: Pairs) -> Pairs:
        """Return what is left to send after a start with ``sent`` was refused; always fewer."""
        await self.read()
        kept = [each for each in sent if self._takes(each.key.name, _plain(each.value))]
        return kept if len(kept) < len(sent) else []

    def accepted(self, key: str | None, sent: Pairs, *, of: Pairs) -> None:
        """Note that a start with ``sent`` was accepted, after others with more of these, if any."""
        names = {each.key.name for each in sent}
        refused = {each.key.name: _plain(each.value) for each in of if each.key.name not in names}
        until = time.monotonic() + _REFUSED_FOR
        self._refused |= dict.fromkeys(refused, until)
        refused.pop(KEY_ATTRIBUTE, None)
        self._leave_out(key, refused)

    def _takes(self, name: str, value: object) -> bool:
        if (until := self._refused.get(name)) is not None:
            if time.monotonic() < until:
                return False
            del self._refused[name]
        if self._kinds is None:  # the namespace does not say
            return name != KEY_ATTRIBUTE
        return misfit(name, value, self._kinds) is None

    def _pair(self, name: str, value: Any) -> SearchAttributePair[Any]:
        kind = (self._kinds or {}).get(name) or usual_kind(value)
        moment = moment_of(value) if kind == "Datetime" else None
        given = float(value) if kind == "Double" else moment or value
        return SearchAttributePair(_KEYS[kind](name), given)

    def _leave_out(self, key: str | None, left: Mapping[str, Any]) -> None:
        for name, value in left.items():
            measures().count(ATTRIBUTES_LEFT_OUT)
            if name in self._told:
                continue
            self._told.add(name)
            found = misfit(name, value, self._kinds) if self._kinds is not None else None
            why, cure = found or (f"search attribute {name}: {_UNEXPLAINED}", "see the Web UI")
            text = f"{key}: {why}; {cure}. Its runs start without it"
            self._emit(Alert(Code.SEARCH_ATTRIBUTE_INVALID, text))

    def _read_again(self) -> None:
        """Begin to read the attributes again if they are no longer fresh; a start never waits."""
        if self._read_at is None or time.monotonic() - self._read_at < _FRESH:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self.read())


def _plain(value: Any) -> Any:
    """Return a value as a schedule has it."""
    return value.isoformat() if hasattr(value, "isoformat") else value
