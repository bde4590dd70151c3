"""Syntax tree of a schedule file, with positions, and the collector of its problems."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from pydantic_core import PydanticCustomError

from engine.errors import Code, Problem
from engine.schedules.terms import BROKEN, MAX_DEPTH
from engine.schedules.validators import shorten, show

# --- nodes ---
# Syntax tree of a schedule file: plain values with their line and column.
#
# Both readers (``yaml_reader``, ``json_reader``) feed a ``Tree``, so nesting, size and duplicate
# names are checked in one place. Building the tree does not recurse.

MAX_BYTES: Final = 32_000_000
"""Maximum size of a file: some 250,000 schedules."""

MAX_NODES: Final = 4_000_000
"""Maximum values and names in one file: megabytes of ``[,`` would otherwise fill the memory."""

MAX_NAME: Final = 50
"""Maximum characters of a name in a message."""


class Unreadable(Exception):
    """Fault that makes the rest of a text unreadable; ``problem`` describes it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Scalar:
    """Text, number, boolean or null."""

    __slots__ = ("column", "line", "value")

    def __init__(self, value: Any, line: int, column: int) -> None:
        self.value = value
        self.line = line
        self.column = column

    def plain(self) -> Any:
        """Return the value."""
        return self.value


class ListNode:
    """List; ``partial`` if it may contain more than was read."""

    __slots__ = ("column", "items", "line", "partial")

    def __init__(self, line: int, column: int) -> None:
        self.items: list[Node] = []
        self.line = line
        self.column = column
        self.partial = False

    def plain(self) -> Any:
        """Return the values, or BROKEN if one of them is BROKEN or some are unknown."""
        values = [item.plain() for item in self.items]
        broken = self.partial or any(value is BROKEN for value in values)
        return BROKEN if broken else values


class MapNode:
    """Names with values; ``partial`` if it may contain more than was read."""

    __slots__ = ("column", "entries", "line", "partial", "pending")

    def __init__(self, line: int, column: int) -> None:
        self.entries: dict[str, tuple[Scalar, Node]] = {}
        self.pending: Node | None = None
        self.line = line
        self.column = column
        self.partial = False

    def plain(self) -> Any:
        """Return the values by name, or BROKEN if one of them is BROKEN or some are unknown."""
        values = {name: node.plain() for name, (_, node) in self.entries.items()}
        broken = self.partial or any(value is BROKEN for value in values.values())
        return BROKEN if broken else values


Node = Scalar | ListNode | MapNode


def descend(node: Node, path: Iterable[str | int]) -> Node:
    """Return the deepest node on a path of names and indexes that exists."""
    for step in path:
        if isinstance(node, MapNode) and step in node.entries:
            node = node.entries[str(step)][1]
        elif isinstance(node, ListNode) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
        else:
            break
    return node


class Tree:
    """Tree built from a stream of values, bottom up, without recursion.

    Attributes:
        root: the whole document; None if there is none yet.
        problems: problems of the text that did not stop the reading.
        warnings: values that are probably mistakes.
        references: whether anchors, aliases or merge keys were found.
    """

    def __init__(self) -> None:
        self.references = False
        self.root: Node | None = None
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._open: list[MapNode | ListNode] = []
        self._nodes = 0
        self._names: dict[str, str] = {}  # interned: a few names occur very often

    def complain(self, node: Node, message: str, hint: str, *, value: str | None = None) -> None:
        """Record a problem at ``node`` and continue."""
        self.problems.append(
            Problem(Code.YAML_INVALID, message, hint, node.line, node.column, value=value)
        )

    def expects_name(self) -> bool:
        """Return whether the next value is a name in a mapping."""
        return (
            bool(self._open) and isinstance(self._open[-1], MapNode) and not self._open[-1].pending
        )

    def mark_partial(self) -> None:
        """Mark the innermost mapping as partial."""
        if self._open:
            self._open[-1].partial = True

    def open(self, node: MapNode | ListNode) -> None:
        """Begin a list or mapping."""
        if len(self._open) >= MAX_DEPTH:
            message = f"the file is nested more than {MAX_DEPTH} levels deep here"
            hint = "flatten it, or give the workflow one text to parse"
            raise Unreadable(Problem(Code.FILE_TOO_LARGE, message, hint, node.line, node.column))
        self._open.append(node)

    def close(self) -> None:
        """End the innermost list or mapping."""
        self.add(self._open.pop())

    def abandon(self) -> None:
        """Close all open nodes as partial, because the text became unreadable.

        So is the item before it in a list: what cannot be read may belong to that.
        """
        innermost = self._open[-1] if self._open else None
        if isinstance(innermost, ListNode) and innermost.items:
            last = innermost.items[-1]
            if isinstance(last, MapNode | ListNode):
                last.partial = True
        while self._open:
            self._open[-1].partial = True
            self.close()

    def add(self, node: Node) -> None:
        """Add a finished value to the innermost open node, or make it the root."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"the file has more than {MAX_NODES:,} values"
            raise Unreadable(
                Problem(Code.FILE_TOO_LARGE, message, "split it", node.line, node.column)
            )
        if not self._open:
            self.root = node
            return
        parent = self._open[-1]
        if isinstance(parent, ListNode):
            parent.items.append(node)
        elif parent.pending is None:
            parent.pending = node
        else:
            name, parent.pending = parent.pending, None
            self._pair(parent, name, node)

    def _pair(self, parent: MapNode, name: Node, node: Node) -> None:
        if not isinstance(name, Scalar) or not isinstance(name.value, str):
            if not isinstance(name, Scalar) or name.value is not BROKEN:
                self.complain(name, "a name here is not a text", "put the name in quotes")
            parent.partial = True
            return
        name.value = self._names.setdefault(name.value, name.value)
        first = parent.entries.get(name.value)
        if first is None:
            parent.entries[name.value] = (name, node)
            return
        shown = shorten(name.value, MAX_NAME + 1)
        message = f"{shown} is given twice; the first is on line {first[0].line}"
        self.complain(name, message, "keep one of the two", value=shown)


# --- problem report ---
# Collector of the problems of a file while it is read.

MAX_PROBLEMS: Final = 1000
"""Maximum problems listed: a hostile file has millions."""


class Report:
    """Problems found so far, and the place where each schedule begins.

    Args:
        watch: called at each schedule and each problem; it may raise to end the reading.
    """

    def __init__(self, watch: Callable[[], None] | None = None) -> None:
        self._watch = watch or (lambda: None)
        self._problems: list[Problem] = []
        self._starts: list[tuple[int, int]] = []
        self._keys: list[str | None] = []

    def begin(self, node: Node) -> str | None:
        """Record that a schedule begins at ``node``; return its key if it can be read."""
        self._watch()
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
        hint: str,
        *,
        key: str | None = None,
        value: Node | None = None,
    ) -> None:
        """Record a problem at ``place``; ``value`` is the node to show."""
        self._watch()
        shown = None if value is None else _shown(value)
        self._problems.append(Problem(code, message, hint, place.line, place.column, key, shown))

    def add_wrong(self, node: Node, what: str, hint: str) -> None:
        """Record that the value of a field has the wrong type, unless it is BROKEN."""
        value = node.plain()
        if value is not BROKEN:
            self.add(node, Code.FIELD_INVALID, f"{what} is {show(value)}", hint, value=node)

    @contextmanager
    def refusals(self, place: Node) -> Iterator[None]:
        """Record a field check's refusal within the block as a problem at ``place``."""
        try:
            yield
        except PydanticCustomError as error:
            context: dict[str, Any] = dict(error.context or {})
            self.add(place, Code(error.type), context["message"], context["hint"], value=place)

    def add_found(self, problems: Iterable[Problem]) -> None:
        """Record problems found while parsing the text, each with its schedule's key."""
        for problem in problems:
            before = bisect_right(self._starts, (problem.line, problem.column))
            key = self._keys[before - 1] if before else None
            self._problems.append(replace(problem, key=key))

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
