"""Loader of one schedule file, or of all files of a project."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple

from engine.errors import Code, Problem, ScheduleFileError
from engine.schedules.hooks import Hook
from engine.schedules.loader.entries import (
    OpenIcs,
    Shared,
    read_calendars,
    read_fields,
    read_hooks,
    read_queues,
    read_schedule,
    report_faults,
)
from engine.schedules.loader.json_reader import JsonText
from engine.schedules.loader.json_schema import HEAD, TOP
from engine.schedules.loader.nodes import (
    MAX_BYTES,
    ListNode,
    MapNode,
    Node,
    Report,
    Scalar,
    Tree,
    Unreadable,
    cut,
)
from engine.schedules.loader.relations import Relations, unmet, with_present_parents
from engine.schedules.loader.yaml_reader import read_yaml
from engine.schedules.model import Queue, Schedule, ScheduleFile
from engine.schedules.terms import BROKEN
from engine.schedules.timing.spec import EVALUATOR_VERSION
from engine.schedules.timing.zones import TZDATA_VERSION
from engine.schedules.validators import show

# --- head and list of schedules ---
# Reader of the tree of one file: its head, and its list of schedules.

_WRITE_LIST: Final = "write schedules: and below it a list of '- key: …'"


class ReadOptions(NamedTuple):
    """Options of a `FileReader`.

    Attributes:
        open_ics, expectations, watch: see ``load_schedules``.
    """

    open_ics: OpenIcs | None = None
    expectations: bool = False
    watch: Callable[[], None] | None = None


_AS_EVER: Final = ReadOptions()


@dataclass
class FileReader:
    """Reader of one tree.

    Attributes:
        project, revision: None if the file does not set them.
        schedules: in file order.
        queues: by name.
        hooks: in file order.
        keys: the first node of each key, valid or not.
        has_every_key: whether no schedule has a key that could not be read.
        calendars: the texts of the .ics files, by name; None of one that could not be read.
    """

    tree: Tree
    asked: ReadOptions = _AS_EVER
    project: str | None = None
    revision: int | None = None

    def __post_init__(self) -> None:
        self.report = Report(self.asked.watch)
        self.schedules: list[Schedule] = []
        self.queues: dict[str, Queue] = {}
        self.hooks: tuple[Hook, ...] = ()
        self.keys: dict[str, Node] = {}
        self.has_every_key = False
        self.calendars: dict[str, str | None] = {}
        self.relations = Relations()

    def read(self) -> None:
        """Fill in the attributes from the tree, and report its problems."""
        root = self.tree.root
        if isinstance(root, MapNode):
            self._read_top(root)
        elif isinstance(root, ListNode):
            self._read_list(root, Shared())
        elif root is None or root.value is None:
            if not self.tree.problems:
                self._empty(Scalar(None, 0, 0), "the file is empty")
        elif not self.tree.problems:
            self.report.add_wrong(root, "the file", _WRITE_LIST)

    def _read_top(self, root: MapNode) -> None:
        report = Report(self.asked.watch) if self.tree.references else self.report
        fields = read_fields(root, TOP, "the file", report)
        nodes = {name: value for name, (_, value) in fields.items()}
        self._read_head(nodes)
        self.queues = read_queues(nodes.get("queues"), self.report)
        self.hooks = read_hooks(nodes.get("hooks"), self.report)
        open_ics = self._open_ics if self.asked.open_ics else None
        shared = Shared(read_calendars(nodes.get("calendars"), open_ics, self.report))
        self._read_defaults(nodes.get("defaults"), shared)
        listed = nodes.get("schedules")
        if isinstance(listed, ListNode):
            self._read_list(listed, shared)
        elif listed is None:
            # If the text itself is broken, the list may be in the unread part.
            if not root.partial and not self.tree.references:
                self._empty(root, "the file has no schedules")
        elif isinstance(listed, MapNode):
            message = "schedules is a mapping"
            cure = "write a list: every schedule begins with '- key: …'"
            self.report.add(listed, Code.FIELD_INVALID, message, cure, value=listed)
        elif listed.value is None:
            self._empty(fields["schedules"][0], "the file has no schedules")
        else:
            self.report.add_wrong(listed, "schedules", _WRITE_LIST)

    def _open_ics(self, calendar: str) -> str:
        assert self.asked.open_ics is not None  # noqa: S101 - it is asked only where there is one
        self.calendars[calendar] = None
        self.calendars[calendar] = found = self.asked.open_ics(calendar)
        return found

    def _read_list(self, listed: ListNode, shared: Shared) -> None:
        if not listed.items and not listed.partial:
            self._empty(listed, "the file has no schedules")
        self.has_every_key = not listed.partial
        items, listed.items = listed.items[::-1], []
        found: list[Schedule | None] = []
        while items:
            node = items.pop()  # frees its part of the tree, which is larger than the text
            late = self.relations.note(node, len(found))
            schedule = None if late else read_schedule(node, shared, self.report)
            found.append(schedule)
            self._check_expectations(schedule, node)
            self._check_twin(node)
        self._read_related(found, shared)

    def _read_related(self, found: list[Schedule | None], shared: Shared) -> None:
        """Read the schedules that take their parents' times."""
        relations = self.relations
        relations.keys = self.keys.keys()
        for place, node, schedule in relations.read(found, shared, self.report):
            found[place] = schedule
            self._check_expectations(schedule, node)
        self.schedules = [each for each in found if each is not None]

    def _check_expectations(self, schedule: Schedule | None, node: Node) -> None:
        if schedule is not None and self.asked.expectations and schedule.expect:
            report_faults(unmet(schedule), node, self.report, schedule.key)

    def _check_twin(self, node: Node) -> None:
        """Report a key that an earlier schedule has, even if either schedule is invalid."""
        pair = node.entries.get("key") if isinstance(node, MapNode) else None
        if pair is None or not isinstance(pair[1], Scalar) or not isinstance(pair[1].value, str):
            self.has_every_key = False
            return
        value = pair[1]
        earlier = self.keys.setdefault(value.value, value)
        if earlier is not value:
            message = f"key {show(value.value)} is taken by the schedule on line {earlier.line}"
            cure = "give every schedule a key of its own"
            self.report.add(
                value, Code.KEY_DUPLICATE, message, cure, key=show(value.value)[1:-1], value=value
            )

    def _read_head(self, nodes: Mapping[str, Node]) -> None:
        """Read the fields with a single value."""
        for name, (check, _) in HEAD.items():
            node = nodes.get(name)
            if node is not None and (plain := node.plain()) is not BROKEN:
                with self.report.refusals(node):
                    value = check.of(plain, name)
                    if name in {"project", "revision"}:
                        setattr(self, name, value)

    def _read_defaults(self, node: Node | None, shared: Shared) -> None:
        if isinstance(node, MapNode):
            shared.read(node, self.report)
        elif node is not None and node.plain() is not None:
            cure = "write a mapping, for example {timezone: America/Sao_Paulo}"
            self.report.add_wrong(node, "defaults", cure)

    def _empty(self, place: Node, message: str) -> None:
        self.report.add(place, Code.FILE_EMPTY, message, _WRITE_LIST)


# --- digest of a file ---
# Detection of an unchanged file without parsing it.
#
# The digest covers everything that the meaning of a file depends on: its text, its calendars, and
# the versions of this reader, the evaluator and tzdata. Only reading a file yields the names of
# its calendars, so they are returned beside the digest.

READING_VERSION: Final = 1
"""Version of the reader; increment it when any text yields other schedules than before."""


def file_digest(text: str, name: str, calendars: Mapping[str, str | None]) -> str:
    """Return the SHA-256, in hex, of a file and of the texts of the calendars it reads.

    Of ``name``, only the suffix ``.json`` matters. A calendar that could not be read is None.
    """
    kind = ".json" if name.lower().endswith(".json") else ""
    parts = [str(READING_VERSION), str(EVALUATOR_VERSION), TZDATA_VERSION, kind, text]
    for calendar in sorted(calendars):
        found = calendars[calendar]
        parts += [calendar] if found is None else [calendar, "", found]
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", errors="surrogatepass")  # lone surrogates are refused elsewhere
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


def joint_digest(digests: Sequence[str], *, warned: bool) -> str:
    """Return the joint digest of several files; a single file without warnings keeps its own.

    ``warned``, whether reading gave warnings, is part of it. Files with warnings thus never match
    the digest of their texts alone: they are read, and their warnings reported, each time.
    """
    if len(digests) == 1 and not warned:
        return digests[0]
    parts = [*digests, "warned"] if warned else digests
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


# --- one file ---
# Loader of one file. It reports all problems at once, each with its place and a cure.

DEFAULT_PROJECT: Final = "default"

_JSON_START = re.compile(r"\s*[{\[]")


def load_schedules(
    text: str | bytes,
    name: str = "schedules.yaml",
    *,
    open_ics: OpenIcs | None = None,
    expectations: bool = False,
    watch: Callable[[], None] | None = None,
) -> ScheduleFile:
    """Return the schedules that ``text`` declares.

    Args:
        text: YAML 1.2 or JSON, of at most 32 megabytes and twenty levels; bytes are UTF-8.
        name: the name of the file in messages; the suffix ``.json`` means JSON.
        open_ics: returns the text of a calendar file; without it, the text may not name one.
        expectations: whether an unmet ``expect:`` is a problem. Only checks of a file set it:
            an unmet expectation does not stop a schedule.
        watch: called again and again; what it raises ends the reading.

    Raises:
        ScheduleFileError: the text is invalid; ``problems`` lists all problems, sorted by
            place.
    """
    only = NamedText(name, decoded(text, name))
    return load_several(
        [only], name, open_ics=lambda _: open_ics, expectations=expectations, watch=watch
    )


def decoded(data: str | bytes, name: str) -> str:
    """Return the text of the file ``name``, without a byte order mark.

    Raises:
        ScheduleFileError: ``data`` is too large or not UTF-8; the problem has the place.
    """
    code, cure, line, column = Code.YAML_INVALID, "save it as UTF-8", 0, 0
    # Lone surrogates are refused later; here they must not raise.
    encoded = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
    if len(encoded) > MAX_BYTES:
        code, cure = Code.FILE_TOO_LARGE, "split it into several projects"
        message = f"the file is larger than {MAX_BYTES // 1_000_000} MB"
    elif isinstance(data, str):
        return data.removeprefix("\ufeff")
    elif data.startswith((b"\xff\xfe", b"\xfe\xff")):
        message = "the file is UTF-16"
    else:
        try:
            return data.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            before = data[data.rfind(b"\n", 0, error.start) + 1 : error.start]
            column = len(before.decode("utf-8", errors="replace")) + 1
            message = f"the byte 0x{data[error.start]:02x} is not UTF-8"
    raise ScheduleFileError(name, (Problem(code, message, cure, line, column),))


def parse_text(text: str, name: str) -> Tree:
    """Return the tree of a text, with positions; see ``read_yaml`` and ``JsonText``."""
    if name.lower().endswith(".json"):
        return JsonText(text).read()
    if _JSON_START.match(text):
        # JSON is YAML, but its escapes (and, without libyaml, its tabs) need a JSON reader.
        try:
            return JsonText(text).read()
        except Unreadable as stop:
            if stop.problem.code == Code.FILE_TOO_LARGE:
                raise
    return read_yaml(text)


# --- files of one project ---
# Loader of all files of one project: unique keys, one project name, one revision.

_MOST: Final = 20
"""Maximum duplicate keys listed."""


@dataclass(frozen=True, slots=True)
class NamedText:
    """Text of one file, with its name in messages."""

    name: str
    text: str


def load_several(
    texts: Sequence[NamedText],
    name: str,
    *,
    open_ics: Callable[[str], OpenIcs | None],
    expectations: bool = False,
    watch: Callable[[], None] | None = None,
) -> ScheduleFile:
    """Return the schedules that several files declare together, each read as a single file.

    ``defaults`` and ``calendars`` apply to their own file only. ``project``, ``revision``,
    ``queues`` and ``hooks`` may be in any of them.

    Args:
        texts: the files, in the order of their schedules.
        name: the common name of several files.
        open_ics: returns, for the name of a file, the function that opens its calendars.
        expectations: see ``load_schedules``.
        watch: see there.

    Raises:
        ScheduleFileError: with the problems of all files, each with its ``file``.
    """
    joined = _Joined(alone=len(texts) == 1)
    for each in texts:
        joined.add(each, ReadOptions(open_ics(each.name), expectations, watch))
    joined.judge()
    name = texts[0].name if joined.alone else name
    if joined.problems:
        digest = joint_digest(joined.digests, warned=False)
        raise ScheduleFileError(name, cut(joined.problems), digest, tuple(joined.calendars))
    return joined.file(name)


@dataclass
class _Joined:
    """Content of all files; problems and warnings name their file if there are several."""

    alone: bool
    read: list[tuple[NamedText, FileReader]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    calendars: list[tuple[str, str]] = field(default_factory=list)

    def add(self, each: NamedText, asked: ReadOptions) -> None:
        """Read one file."""
        try:
            reading = FileReader(parse_text(each.text, each.name), asked)
            reading.read()
            reading.report.add_found(reading.tree.problems)
        except Unreadable as stop:
            reading = FileReader(Tree())
            reading.report.add_found([stop.problem])
        self.digests.append(file_digest(each.text, each.name, reading.calendars))
        self.calendars += ((each.name, calendar) for calendar in reading.calendars)
        self.read.append((each, reading))

    def judge(self) -> None:
        """Check the relations between all schedules, and that the files agree."""
        schedules = self._schedules()
        keys = {key for _, reading in self.read for key in reading.keys}
        known = keys if all(reading.has_every_key for _, reading in self.read) else None
        for each, reading in self.read:
            reading.relations.judge(schedules, known, reading.report)
            self.problems += self._named(each, reading.report.sorted())
            self.warnings += self._named(each, reading.tree.warnings)
        if not self.alone:
            order = {each.name: number for number, (each, _) in enumerate(self.read)}
            self.problems += _contradictions(self.read)
            self.problems.sort(key=lambda each: (order[each.file or ""], each.line, each.column))

    def _schedules(self) -> list[Schedule]:
        """Return the schedules of all files; a parent may have been renamed in another one."""
        return with_present_parents(
            [each for _, reading in self.read for each in reading.schedules]
        )

    def _named(self, each: NamedText, problems: Sequence[Problem]) -> Sequence[Problem]:
        return problems if self.alone else [replace(found, file=each.name) for found in problems]

    def file(self, name: str) -> ScheduleFile:
        stated = [reading for _, reading in self.read]
        return ScheduleFile(
            project=next((r.project for r in stated if r.project), DEFAULT_PROJECT),
            revision=next((r.revision for r in stated if r.revision is not None), None),
            schedules=tuple(self._schedules()),
            name=name,
            digest=joint_digest(self.digests, warned=bool(self.warnings)),
            warnings=tuple(self.warnings),
            calendars=tuple(self.calendars),
            queues={name: queue for r in stated for name, queue in r.queues.items()},
            hooks=tuple(hook for r in stated for hook in r.hooks),
        )


_Read = tuple[NamedText, FileReader]


def _contradictions(read: Sequence[_Read]) -> list[Problem]:
    """Return the contradictions between files."""
    problems: list[Problem] = []
    for name in ("project", "revision"):
        stating = [(each, reading) for each, reading in read if getattr(reading, name) is not None]
        for each, reading in stating[1:]:
            value, agreed = getattr(reading, name), getattr(stating[0][1], name)
            if value != agreed:
                message = f"{name} is {value} here and {agreed} in {stating[0][0].name}"
                cure = "write the same in both, or in one of them only"
                place = _top(reading, name)
                problems.append(_at(place, each, Code.FIELD_INVALID, message, cure))
    for name, each, reading, (owner, _) in _twins(read, lambda of: of.queues):
        message, place = f"queue {name} is declared in {owner.name}, too", _top(reading, "queues")
        if isinstance(place, MapNode):
            place = place.entries[name][0]
        cure = "declare it in one of them; it holds for the whole project"
        problems.append(_at(place, each, Code.FIELD_INVALID, message, cure))
    hooks = _twins(read, lambda of: [f"{hook.label} {hook.place}" for hook in of.hooks])
    for name, each, reading, (owner, _) in hooks:
        message = f"a hook to {name.split()[1]} has the url of one in {owner.name}"
        place = _top(reading, "hooks")
        problems.append(_at(place, each, Code.FIELD_INVALID, message, "write both as one"))
    for key, each, reading, (owner, earlier) in islice(_twins(read, lambda of: of.keys), _MOST):
        line = earlier.keys[key].line
        message = f"key '{key}' is taken by the schedule at {owner.name}:{line}"
        cure = "give every schedule a key of its own"
        found = _at(reading.keys[key], each, Code.KEY_DUPLICATE, message, cure)
        problems.append(replace(found, key=key))
    return problems


def _twins(
    read: Sequence[_Read], names: Callable[[FileReader], Iterable[str]]
) -> Iterator[tuple[str, NamedText, FileReader, _Read]]:
    """Yield each name that an earlier file has too, with its file and the earlier one."""
    first: dict[str, _Read] = {}
    for each, reading in read:
        for name in names(reading):
            owner = first.setdefault(name, (each, reading))
            if owner[0] is not each:
                yield name, each, reading, owner


def _top(reading: FileReader, field: str) -> Node | None:
    root = reading.tree.root
    pair = root.entries.get(field) if isinstance(root, MapNode) else None
    return pair[1] if pair else None


def _at(node: Node | None, file: NamedText, code: Code, message: str, cure: str) -> Problem:
    line, column = (node.line, node.column) if node else (0, 0)
    value = str(node.value) if isinstance(node, Scalar) else None
    return Problem(code, message, cure, line, column, value=value, file=file.name)
