"""Syntax tree of a schedule file: plain values with their line and column.

Both readers (``yaml_reader``, ``json_reader``) feed a ``Tree``, so nesting, size and duplicate
names are checked in one place. Building the tree does not recurse.
"""

from __future__ import annotations

from typing import Any, Final

from engine.errors import Code, Problem
from engine.schedules.policies import BROKEN, MAX_DEPTH

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

    def complain(self, node: Node, message: str, cure: str, *, value: str | None = None) -> None:
        """Record a problem at ``node`` and continue."""
        self.problems.append(
            Problem(Code.YAML_INVALID, message, cure, node.line, node.column, value=value)
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
            cure = "flatten it, or give the workflow one text to parse"
            raise Unreadable(Problem(Code.FILE_TOO_LARGE, message, cure, node.line, node.column))
        self._open.append(node)

    def close(self) -> None:
        """End the innermost list or mapping."""
        self.add(self._open.pop())

    def abandon(self) -> None:
        """Close all open nodes as partial, because the text became unreadable."""
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
        shown = name.value if len(name.value) <= MAX_NAME else name.value[:MAX_NAME] + "…"
        message = f"{shown} is given twice; the first is on line {first[0].line}"
        self.complain(name, message, "keep one of the two", value=shown)
