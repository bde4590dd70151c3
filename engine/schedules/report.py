"""Collects the problems of a file while it is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pydantic_core import PydanticCustomError

from engine.errors import Code, Problem
from engine.schedules.fields import shorten, show
from engine.schedules.nodes import BROKEN, Mapping, Node, Scalar

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
        if isinstance(node, Mapping) and "key" in node.entries:
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
        return show([]) if not isinstance(node, Mapping) else show({})
    if node.value is BROKEN:
        return None
    return shorten(node.value) if isinstance(node.value, str) else show(node.value)
