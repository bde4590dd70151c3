"""Joins the schedule files of one project: every key once, one project, one revision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Final

from engine.errors import Code, Problem, ScheduleFileError
from engine.schedules.calendars import OpenIcs
from engine.schedules.file import DEFAULT_PROJECT, FileText, parse_text, read_file_text
from engine.schedules.file_digest import joint_digest
from engine.schedules.file_reading import Reading
from engine.schedules.model import Schedule
from engine.schedules.nodes import Mapping, Node, Scalar
from engine.schedules.nodes import Sequence as Items
from engine.schedules.report import cut
from engine.schedules.schedule_file import ScheduleFile

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

    ``defaults`` and ``calendars`` hold for their own file. ``project``, ``revision`` and
    ``queues`` may stand in any of them.

    Args:
        texts: the files; their order is that of the schedules.
        name: what they are called together.
        open_ics: returns, for a file's name, what opens the calendars that it names.
        expectations: see ``load_schedules``.

    Raises:
        ScheduleFileError: with the problems of all files, each with its ``file``.
    """
    joined = _Joined(alone=len(texts) == 1)
    for each in texts:
        try:
            found = read_file_text(
                each.text, each.name, open_ics=open_ics(each.name), expectations=expectations,
                alone=joined.alone,
            )  # fmt: skip
        except ScheduleFileError as error:
            joined.add_broken(each, error)
        else:
            joined.add(each, found)
    joined.problems += _contradictions(joined.read)
    if not joined.alone and not joined.problems:  # what cannot be read may be a parent
        joined.add_family_problems()
    name = texts[0].name if joined.alone else name
    if joined.problems:
        digest = joint_digest(joined.digests, warned=False)
        raise ScheduleFileError(name, cut(joined.problems), digest, tuple(joined.calendars))
    return joined.file(name)


@dataclass
class _Joined:
    """What the files say together; problems and warnings name their file where it has others."""

    alone: bool
    read: list[tuple[NamedText, Reading]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    calendars: list[tuple[str, str]] = field(default_factory=list)

    def add(self, each: NamedText, found: FileText) -> None:
        self.read.append((each, found.reading))
        self.warnings += self._named(each, found.reading.tree.warnings)
        self._add_digest(found)

    def add_broken(self, each: NamedText, error: ScheduleFileError) -> None:
        self.problems += self._named(each, error.problems)
        self._add_digest(error)

    def add_family_problems(self) -> None:
        """Judge who follows whom, across all files."""
        schedules = [schedule for _, reading in self.read for schedule in reading.schedules]
        keys = {schedule.key for schedule in schedules}
        for each, reading in self.read:
            self.problems += self._named(each, reading.families.problems(schedules, keys))

    def _add_digest(self, found: FileText | ScheduleFileError) -> None:
        self.digests.append(found.digest)
        self.calendars += found.calendars

    def _named(self, each: NamedText, problems: Sequence[Problem]) -> Sequence[Problem]:
        return problems if self.alone else [replace(found, file=each.name) for found in problems]

    def file(self, name: str) -> ScheduleFile:
        stated = [reading for _, reading in self.read]
        return ScheduleFile(
            project=next((r.project for r in stated if r.project), DEFAULT_PROJECT),
            revision=next((r.revision for r in stated if r.revision is not None), None),
            schedules=tuple(schedule for reading in stated for schedule in reading.schedules),
            name=name,
            digest=joint_digest(self.digests, warned=bool(self.warnings)),
            warnings=tuple(self.warnings),
            calendars=tuple(self.calendars),
            queues={name: queue for r in stated for name, queue in r.queues.items()},
        )


def _contradictions(read: Sequence[tuple[NamedText, Reading]]) -> list[Problem]:
    """Return in what the files, each sound by itself, do not agree."""
    problems: list[Problem] = []
    for name in ("project", "revision"):
        stating = [(each, getattr(reading, name)) for each, reading in read]
        stating = [(each, value) for each, value in stating if value is not None]
        for each, value in stating[1:]:
            first, agreed = stating[0]
            if value != agreed:
                message = f"{name} is {value} here and {agreed} in {first.name}"
                cure = "write the same in both, or in one of them only"
                problems.append(_at(_top(each, name), each, Code.FIELD_INVALID, message, cure))
    problems += _twin_queues(read)
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


def _twin_queues(read: Sequence[tuple[NamedText, Reading]]) -> list[Problem]:
    problems = []
    first: dict[str, NamedText] = {}
    for each, reading in read:
        for name in reading.queues:
            if (owner := first.setdefault(name, each)) is not each:
                message = f"queue {name} is declared in {owner.name}, too"
                place = _top(each, "queues")
                if isinstance(place, Mapping):
                    place = place.entries[name][0]
                cure = "declare it in one of them; it holds for the whole project"
                problems.append(_at(place, each, Code.FIELD_INVALID, message, cure))
    return problems


def _twin(schedule: Schedule, later: NamedText, first: NamedText) -> Problem:
    place = _key_of(first, schedule.key)
    where = f"{first.name}:{place.line}" if place else first.name
    message = f"key '{schedule.key}' is taken by the schedule at {where}"
    cure = "give every schedule a key of its own"
    node = _key_of(later, schedule.key)
    return replace(_at(node, later, Code.KEY_DUPLICATE, message, cure), key=schedule.key)


def _at(node: Node | None, file: NamedText, code: Code, message: str, cure: str) -> Problem:
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
