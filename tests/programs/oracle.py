"""What has to stand after a program, by its text alone. It shares no code with the engine."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.programs.program import Node


@dataclass
class Expected:
    """What a program leaves.

    Attributes:
        stands: what has to stand, by label.
        may: what may stand besides: steps without an undo in branches that may have been stopped.
        fails: whether it ends with an error.
        undoable: of ``stands``, what a later error of the same run takes away.
    """

    stands: Counter[str] = field(default_factory=Counter)
    may: Counter[str] = field(default_factory=Counter)
    fails: bool = False
    undoable: Counter[str] = field(default_factory=Counter)

    def undo(self) -> None:
        """An error takes away what has an undo step."""
        self.stands -= self.undoable
        self.undoable = Counter()

    def add(self, other: Expected) -> None:
        """Another part of the run follows, or goes on beside it."""
        self.stands += other.stands
        self.may += other.may
        self.undoable += other.undoable
        self.fails = self.fails or other.fails


def expected(nodes: list[Node]) -> Expected:
    """Return what a run of its own leaves."""
    found = _sequence(nodes)
    if found.fails:
        found.undo()
    return found


def after_an_interruption(nodes: list[Node]) -> Counter[str]:
    """Return what may stand after a run that was cancelled, or terminated and cleaned up."""
    commits = [at for at, node in enumerate(nodes) if node.do == "commit"]
    kept = commits[-1] if commits else 0
    return every_label(nodes[:kept]) + _perhaps(nodes[kept:])


def every_label(nodes: list[Node]) -> Counter[str]:
    """Return how often each label can be booked."""
    found: Counter[str] = Counter()
    for node in nodes:
        if node.do == "step":
            found[node.label] += 1
        for part in node.parts:
            found += every_label(part)
    return found


def _perhaps(nodes: list[Node]) -> Counter[str]:
    """Return what may stand of a part of a run that was stopped anywhere, and undone."""
    found: Counter[str] = Counter()
    for node in nodes:
        if node.do == "step" and not node.undo:
            found[node.label] += 1
        for part in node.parts:
            # A child may have ended before, or have lost its report.
            found += every_label(part) if node.do == "child" else _perhaps(part)
    return found


def _sequence(nodes: list[Node]) -> Expected:
    found = Expected()
    for node in nodes:
        if node.do == "commit":
            found.undoable = Counter()
            continue
        found.add(_one(node))
        if found.fails:
            break
    return found


def _one(node: Node) -> Expected:
    if node.do == "step":
        label = Counter({node.label: 1})
        return Expected(label, fails=node.fatal, undoable=label if node.undo else Counter())
    if node.do == "fail":
        return Expected(fails=True)
    if node.do == "child":
        child = expected(node.parts[0])
        taken_away = child.stands if node.undo and not child.fails else Counter()
        return Expected(child.stands, child.may, child.fails, taken_away)
    if node.do == "saga":
        part = _sequence(node.parts[0])
        if part.fails:
            part.undo()
            part.fails = not node.caught
        return part
    if node.do == "parallel":
        return _parallel(node)
    return Expected()


def _parallel(node: Node) -> Expected:
    parts = [_sequence(part) for part in node.parts]
    found = Expected(fails=any(part.fails for part in parts))
    for branch, part in zip(node.parts, parts, strict=True):
        if found.fails:
            found.may += _perhaps(branch)
        else:
            found.add(part)
    return found
