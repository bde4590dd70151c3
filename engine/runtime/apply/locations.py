"""Source positions of fields in schedule files, found again when there is something to report."""

from __future__ import annotations

import collections.abc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from engine.errors import Code, Problem, ScheduleFileError, WorkflowUnknown
from engine.runtime.apply.edits import ApplyReport
from engine.runtime.apply.source import Source
from engine.schedules import ScheduleFile
from engine.schedules.loader.loader import parse_text
from engine.schedules.loader.nodes import ListNode, MapNode, Node, Scalar, Unreadable

Known: TypeAlias = "collections.abc.Mapping[str, str]"
"""What is known of each key's workflow."""

_LARGEST: Final = 500_000
"""Largest text, in characters, that is parsed again: about a second."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A problem of one schedule, with the path of the field that causes it."""

    code: Code
    key: str
    message: str
    cure: str
    path: tuple[str | int, ...]


def placed(found: Sequence[Mismatch], source: Source | ScheduleFile | None) -> list[Problem]:
    """Return problems with file, line and column, as far as they can be found.

    Args:
        found: the mismatches.
        source: the files; they are parsed again, unless they are large or no longer readable. A
            ``ScheduleFile`` is used only if its files are unchanged.
    """
    if not found:
        return []
    files = _still_there(source) if isinstance(source, ScheduleFile) else source
    places = _Places(files) if files else None
    return [_problem(each, places) for each in found]


def _still_there(file: ScheduleFile) -> Source | None:
    """Return the source of a file if its digest is unchanged."""
    source = Source(Path(file.name))
    try:
        return source if source.look().digest() == file.digest else None
    except ScheduleFileError:
        return None


def unknown_workflows(known: Known) -> list[Mismatch]:
    """Return a mismatch for each key whose workflow no worker can run."""
    return [
        Mismatch(WorkflowUnknown.code, key, f"{key}: {what}", "", ("workflow",))
        for key, what in known.items()
    ]


def located(report: ApplyReport, source: Source | ScheduleFile | None) -> list[str]:
    """Return the remarks of a report, those on unknown workflows with their positions."""
    mismatches = unknown_workflows(report.unknown)
    plain = {f"{each.code}: {each.message}" for each in mismatches}
    name = source.name if isinstance(source, ScheduleFile | Source) else ""
    return [
        *(remark for remark in report.remarks if remark not in plain),
        *(each.located(name) if name else each.message for each in placed(mismatches, source)),
    ]


class _Places:
    """Parsed schedule nodes of a source, by key."""

    def __init__(self, source: Source) -> None:
        self._schedules: dict[str, tuple[str, MapNode]] = {}
        try:
            texts = source.texts()
        except ScheduleFileError:
            return
        for each in texts:
            if len(each.text) > _LARGEST:
                continue
            try:
                root = parse_text(each.text, each.name).root
            except Unreadable:
                continue
            for node in _schedules(root):
                key = node.entries["key"][1].plain() if "key" in node.entries else None
                if isinstance(key, str):
                    self._schedules.setdefault(key, (each.name, node))

    def of(self, key: str, path: Sequence[str | int]) -> tuple[str, Node] | None:
        """Return the file, and the deepest node on the path that exists."""
        if key not in self._schedules:
            return None
        file, node = self._schedules[key]
        found: Node = node
        for part in path:
            if isinstance(found, MapNode) and part in found.entries:
                found = found.entries[str(part)][1]
            elif isinstance(found, ListNode) and isinstance(part, int) and part < len(found.items):
                found = found.items[part]
            else:
                break
        return file, found


def _schedules(root: Node | None) -> list[MapNode]:
    if isinstance(root, MapNode) and "schedules" in root.entries:
        root = root.entries["schedules"][1]
    items = root.items if isinstance(root, ListNode) else []
    return [item for item in items if isinstance(item, MapNode)]


def _problem(each: Mismatch, places: _Places | None) -> Problem:
    place = places.of(each.key, each.path) if places else None
    file, node = place or (None, Scalar(None, 0, 0))
    return Problem(
        each.code, each.message, each.cure, node.line, node.column, key=each.key, file=file
    )
