"""Problem collector of the loader, and spelling suggestions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Final

from pydantic_core import PydanticCustomError

from engine.errors import Code, Problem
from engine.schedules.loader.nodes import MAX_NAME, MapNode, Node, Scalar
from engine.schedules.policies import BROKEN
from engine.schedules.validators import shorten, show

# --- problem report ---
# Collects the problems of a file while it is read.

MAX_PROBLEMS: Final = 1000
"""Problems listed of one file: a hostile one has millions."""


class Report:
    """The problems found so far, and where each schedule begins."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._starts: list[tuple[int, int]] = []
        self._keys: list[str | None] = []

    def begin(self, node: Node) -> str | None:
        """Note that a schedule begins at ``node``; return its key where one can be read."""
        key = None
        if isinstance(node, MapNode) and "key" in node.entries:
            value = node.entries["key"][1].plain()
            key = shorten(value) if isinstance(value, str) else None
        self._starts.append((node.line, node.column))
        self._keys.append(key)
        return key

    def add(
        self,
        place: Node,
        code: Code,
        message: str,
        cure: str,
        *,
        key: str | None = None,
        value: Node | None = None,
    ) -> None:
        """Note a problem at ``place``; ``value`` is the node to show."""
        shown = None if value is None else _shown(value)
        self._problems.append(Problem(code, message, cure, place.line, place.column, key, shown))

    @contextmanager
    def refusals(self, place: Node) -> Iterator[None]:
        """Note what a field's check refuses within the block as a problem at ``place``."""
        try:
            yield
        except PydanticCustomError as error:
            context: dict[str, Any] = dict(error.context or {})
            self.add(place, Code(error.type), context["message"], context["cure"], value=place)

    def add_found(self, problems: Iterable[Problem]) -> None:
        """Note problems that the reading of the text has found, each with its schedule's key."""
        for problem in problems:
            before = bisect_right(self._starts, (problem.line, problem.column))
            key = self._keys[before - 1] if before else None
            self._problems.append(
                Problem(
                    problem.code, problem.message, problem.cure, problem.line, problem.column,
                    key, problem.value,
                )
            )  # fmt: skip

    def sorted(self) -> tuple[Problem, ...]:
        """Return the problems by place, cut to a length that can be read."""
        return cut(sorted(self._problems, key=lambda problem: (problem.line, problem.column)))


def cut(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return so many problems as can be read, and how many more there are.

    What says so already, of one file of several, is kept.
    """
    listed = [problem for problem in problems if problem.code != Code.FILE_INVALID]
    if len(listed) <= MAX_PROBLEMS:
        return tuple(problems)
    more = len(listed) - MAX_PROBLEMS
    said = [problem for problem in problems if problem.code == Code.FILE_INVALID]
    last = Problem(Code.FILE_INVALID, f"{more:,} more problems are not listed")
    return (*listed[:MAX_PROBLEMS], *said, last)


def _shown(node: Node) -> str | None:
    if not isinstance(node, Scalar):
        return show([]) if not isinstance(node, MapNode) else show({})
    if node.value is BROKEN:
        return None
    return shorten(node.value) if isinstance(node.value, str) else show(node.value)


# --- spelling suggestions ---
# Which field a misspelt one was meant to be.

_CLOSE_ENOUGH = 0.7
_SHORTEST = 3

# What the same thing is called elsewhere.
_ELSEWHERE = {
    "id": "key", "name": "key",
    "every": "everyMs", "interval": "everyMs", "offset": "offsetMs",
    "crontab": "cron", "expression": "cron", "pattern": "cron",
    "schedule": "cron", "scheduleinterval": "cron",
    "tz": "timezone", "zone": "timezone", "runat": "at",
    "startdate": "start", "starttime": "start", "enddate": "end", "endtime": "end",
    "active": "enabled", "disabled": "enabled", "suspend": "enabled", "suspended": "enabled",
    "concurrencypolicy": "overlap", "jitter": "spread", "calendar": "exclude",
    "maxactiveruns": "maxConcurrentRuns", "maxinstances": "maxConcurrentRuns",
    "maxconcurrency": "maxConcurrentRuns", "concurrency": "maxConcurrentRuns",
    "args": "input", "payload": "input", "data": "input", "queue": "taskQueue",
    "jobs": "schedules", "tasks": "schedules",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The field that was meant; ``certain`` when only its spelling differs."""

    name: str
    certain: bool


def nearest(name: str, allowed: Collection[str]) -> Suggestion | None:
    """Return the field of ``allowed`` that ``name`` was meant to be, if any is near."""
    return _nearest(_bare(name), tuple(allowed))


@lru_cache(maxsize=1024)
def _nearest(bare: str, allowed: tuple[str, ...]) -> Suggestion | None:
    by_bare = {_bare(known): known for known in allowed}
    if bare in by_bare:
        return Suggestion(by_bare[bare], certain=True)
    elsewhere = _ELSEWHERE.get(bare)
    if elsewhere in allowed:
        return Suggestion(elsewhere, certain=False)
    # ``at`` resembles half of all short words.
    long = [known for known in by_bare if len(known) >= _SHORTEST]
    close = get_close_matches(bare, long, n=1, cutoff=_CLOSE_ENOUGH)
    return Suggestion(by_bare[close[0]], certain=False) if close else None


def _bare(name: str) -> str:
    """Reduce a name to its letters, so that ``every_ms`` and ``everyMs`` are the same."""
    return "".join(sign for sign in name[:MAX_NAME].lower() if sign.isalnum())
