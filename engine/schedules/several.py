"""Joins the schedule files of one project: every key once, one project, one revision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Final

from engine.errors import Problem, ScheduleFileError
from engine.schedules.calendars import OpenIcs
from engine.schedules.fields import FIELD_INVALID
from engine.schedules.file import (
    DEFAULT_PROJECT,
    KEY_DUPLICATE,
    Reading,
    parse_text,
    read_file_text,
)
from engine.schedules.file_digest import joint_digest
from engine.schedules.model import Schedule, ScheduleFile
from engine.schedules.nodes import Mapping, Node, Scalar
from engine.schedules.nodes import Sequence as Items
from engine.schedules.report import MAX_PROBLEMS

_MOST: Final = 20
"""Keys in two files that are listed: each is looked for in the text again."""


@dataclass(frozen=True, slots=True)
class NamedText:
    """The text of one file, by the name that messages use."""

    name: str
    text: str


def load_several(
    texts: Sequence[NamedText],
    name: str,
    *,
    open_ics: Callable[[str], OpenIcs],
    expectations: bool = False,
) -> ScheduleFile:
    """Return the schedules that several files declare together; ``load_schedules`` of each.

    ``defaults`` and ``calendars`` hold for their own file. ``project`` and ``revision`` may
    stand in any of them.

    Args:
        texts: the files; their order is that of the schedules.
        name: what they are called together.
        open_ics: returns, for a file's name, what opens the calendars that it names.
        expectations: see ``load_schedules``.

    Raises:
        ScheduleFileError: with the problems of all files, each with its ``file``.
    """
    alone = len(texts) == 1
    problems: list[Problem] = []
    read: list[tuple[NamedText, Reading]] = []
    digests: list[str] = []
    for each in texts:
        try:
            reading, digest = read_file_text(
                each.text, each.name, open_ics=open_ics(each.name), expectations=expectations
            )
        except ScheduleFileError as error:
            problems += [
                problem if alone else replace(problem, file=each.name) for problem in error.problems
            ]
        else:
            read.append((each, reading))
            digests.append(digest)
    problems += _contradictions(read)
    if problems:
        raise ScheduleFileError(texts[0].name if alone else name, tuple(problems[:MAX_PROBLEMS]))
    stated = [reading for _, reading in read]
    return ScheduleFile(
        project=next((r.project for r in stated if r.project), DEFAULT_PROJECT),
        revision=next((r.revision for r in stated if r.revision is not None), None),
        schedules=tuple(schedule for reading in stated for schedule in reading.schedules),
        name=texts[0].name if alone else name,
        digest=joint_digest(digests),
        warnings=tuple(
            warning if alone else replace(warning, file=each.name)
            for each, reading in read
            for warning in reading.tree.warnings
        ),
    )


def _contradictions(read: Sequence[tuple[NamedText, Reading]]) -> list[Problem]:
    """Return in what the files, each sound by itself, do not agree."""
    problems: list[Problem] = []
    for field in ("project", "revision"):
        stating = [(each, getattr(reading, field)) for each, reading in read]
        stating = [(each, value) for each, value in stating if value is not None]
        for each, value in stating[1:]:
            first, agreed = stating[0]
            if value != agreed:
                message = f"{field} is {value} here and {agreed} in {first.name}"
                cure = "write the same in both, or in one of them only"
                problems.append(_at(_top(each, field), each, FIELD_INVALID, message, cure))
    owners: dict[str, NamedText] = {}
    twins = (
        (schedule, each, owners[schedule.key])
        for each, reading in read
        for schedule in reading.schedules
        if owners.setdefault(schedule.key, each) is not each
    )
    problems += (_twin(*twin) for twin in islice(twins, _MOST))
    _root.cache_clear()  # megabytes, and nobody asks again
    return problems


def _twin(schedule: Schedule, later: NamedText, first: NamedText) -> Problem:
    place = _key_of(first, schedule.key)
    where = f"{first.name}:{place.line}" if place else first.name
    message = f"key '{schedule.key}' is taken by the schedule at {where}"
    cure = "give every schedule a key of its own"
    node = _key_of(later, schedule.key)
    return replace(_at(node, later, KEY_DUPLICATE, message, cure), key=schedule.key)


def _at(node: Node | None, file: NamedText, code: str, message: str, cure: str) -> Problem:
    line, column = (node.line, node.column) if node else (0, 0)
    value = str(node.value) if isinstance(node, Scalar) else None
    return Problem(code, message, cure, line, column, value=value, file=file.name)


@lru_cache(maxsize=4)
def _root(file: NamedText) -> Node | None:
    """Return a file's tree; it is read again, with places, for files hardly ever disagree."""
    return parse_text(file.text, file.name).root


def _top(file: NamedText, field: str) -> Node | None:
    root = _root(file)
    pair = root.entries.get(field) if isinstance(root, Mapping) else None
    return pair[1] if pair else None


def _key_of(file: NamedText, key: str) -> Node | None:
    root = _root(file)
    listed = root if isinstance(root, Items) else _top(file, "schedules")
    for node in listed.items if isinstance(listed, Items) else ():
        pair = node.entries.get("key") if isinstance(node, Mapping) else None
        if pair is not None and pair[1].plain() == key:
            return pair[1]
    return None
