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
# Collector of the problems of a file while it is read.

MAX_PROBLEMS: Final = 1000
"""Maximum problems listed: a hostile file has millions."""


class Report:
    """Problems found so far, and the place where each schedule begins."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._starts: list[tuple[int, int]] = []
        self._keys: list[str | None] = []

    def begin(self, node: Node) -> str | None:
        """Record that a schedule begins at ``node``; return its key if it can be read."""
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
        """Record a problem at ``place``; ``value`` is the node to show."""
        shown = None if value is None else _shown(value)
        self._problems.append(Problem(code, message, cure, place.line, place.column, key, shown))

    @contextmanager
    def refusals(self, place: Node) -> Iterator[None]:
        """Record a field check's refusal within the block as a problem at ``place``."""
        try:
            yield
        except PydanticCustomError as error:
            context: dict[str, Any] = dict(error.context or {})
            self.add(place, Code(error.type), context["message"], context["cure"], value=place)

    def add_found(self, problems: Iterable[Problem]) -> None:
        """Record problems found while parsing the text, each with its schedule's key."""
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
        """Return the problems sorted by place, limited by `cut`."""
        return cut(sorted(self._problems, key=lambda problem: (problem.line, problem.column)))


def cut(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Return at most `MAX_PROBLEMS` problems, and one that counts the rest.

    Such counts of single files are kept and not counted.
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
# The known field that a misspelt one probably stands for.

_CLOSE_ENOUGH = 0.7
_SHORTEST = 3

# Names of the same fields in other schedulers.
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
    """Field that was meant; ``certain`` if only case or punctuation differs."""

    name: str
    certain: bool


def nearest(name: str, allowed: Collection[str]) -> Suggestion | None:
    """Return the field of ``allowed`` that ``name`` probably stands for, or None."""
    return _nearest(_bare(name), tuple(allowed))


@lru_cache(maxsize=1024)
def _nearest(bare: str, allowed: tuple[str, ...]) -> Suggestion | None:
    by_bare = {_bare(known): known for known in allowed}
    if bare in by_bare:
        return Suggestion(by_bare[bare], certain=True)
    elsewhere = _ELSEWHERE.get(bare)
    if elsewhere in allowed:
        return Suggestion(elsewhere, certain=False)
    # Skip very short names: ``at`` resembles half of all short words.
    long = [known for known in by_bare if len(known) >= _SHORTEST]
    close = get_close_matches(bare, long, n=1, cutoff=_CLOSE_ENOUGH)
    return Suggestion(by_bare[close[0]], certain=False) if close else None


def _bare(name: str) -> str:
    """Reduce a name to letters and digits, so that ``every_ms`` and ``everyMs`` are equal."""
    return "".join(sign for sign in name[:MAX_NAME].lower() if sign.isalnum())
