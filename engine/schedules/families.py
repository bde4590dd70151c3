"""Reads who follows whom in one file: where it says so, and whose times it means."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from engine.errors import Problem
from engine.schedules.chains import chain_faults, inherited, parents_of
from engine.schedules.entries import Shared, read_schedule, report_faults
from engine.schedules.model import Schedule
from engine.schedules.nodes import BROKEN, Mapping, Node
from engine.schedules.report import Report
from engine.schedules.rules import KINDS

_FOLLOWS: Final = ("after", "needs")
_MOST: Final = 200
"""Faults between schedules that are listed."""

_ANY_TIME: Final = {"everyMs": 1000}
"""Stands for times that nobody can know, so that the rest of a schedule can be judged."""


class Families:
    """The schedules of one file that follow others.

    Attributes:
        keys: of all schedules of the file, sound or not.
    """

    def __init__(self) -> None:
        self.keys: Collection[str] = ()
        self._nodes: dict[str, Mapping] = {}
        self._waiting: list[tuple[int, Mapping]] = []
        self._timeless: set[str] = set()

    def note(self, node: Node, place: int) -> bool:
        """Look at the schedule at ``place``; whether it is to be read once its parents are."""
        if not isinstance(node, Mapping) or not any(name in node.entries for name in _FOLLOWS):
            return False
        key = node.entries["key"][1].plain() if "key" in node.entries else None
        if isinstance(key, str):
            self._nodes.setdefault(key, node)
        if any(name in node.entries for name in KINDS) or not [*parents_of(_values(node))]:
            return False
        self._waiting.append((place, node))
        return True

    def read(
        self, found: Sequence[Schedule | None], shared: Shared, report: Report, *, alone: bool
    ) -> Iterator[tuple[int, Node, Schedule]]:
        """Yield the schedules that take their parents' times, each with its place and node.

        Args:
            found: what has been read.
            shared: the defaults of the file.
            report: hears what is wrong.
            alone: whether there is no other file, in which a parent could be.
        """
        known = {schedule.key: schedule for schedule in found if schedule}
        waiting, before = self._waiting, -1
        while waiting and len(waiting) != before:
            before, rest = len(waiting), []
            for place, node in waiting:
                taken = inherited(_values(node), known)
                if taken is None:
                    rest.append((place, node))
                elif schedule := read_schedule(node, shared, report, taken):
                    known.setdefault(schedule.key, schedule)
                    yield place, node, schedule
            waiting = rest
        for place, node in waiting:
            near = alone or any(key in self.keys for key in parents_of(_values(node)))
            schedule = read_schedule(node, shared, report, _ANY_TIME if near else None)
            if schedule:
                self._timeless.add(schedule.key)
                yield place, node, schedule

    def judge(self, schedules: Sequence[Schedule], keys: Collection[str], report: Report) -> None:
        """Report what is wrong between these schedules, as far as this file says it."""
        listed = 0
        for key, fault in chain_faults(schedules, keys, self._timeless):
            if (node := self._nodes.get(key)) is not None and listed < _MOST:
                report_faults([fault], node, report, key)
                listed += 1

    def problems(self, schedules: Sequence[Schedule], keys: Collection[str]) -> Sequence[Problem]:
        """Return what `judge` would report."""
        report = Report()
        self.judge(schedules, keys, report)
        return report.sorted()


def _values(node: Mapping) -> dict[str, Any]:
    values = {name: value.plain() for name, (_, value) in node.entries.items() if name != "input"}
    return {name: value for name, value in values.items() if value is not BROKEN}
