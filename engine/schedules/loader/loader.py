"""Loader of one schedule file, or of all files of a project."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

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
from engine.schedules.loader.relations import (
    chain_faults,
    inherited,
    parents_of,
    unmet,
    with_present_parents,
)
from engine.schedules.loader.yaml_reader import read_yaml
from engine.schedules.model import Queue, Schedule, ScheduleFile
from engine.schedules.rules import KINDS, Fault
from engine.schedules.terms import BROKEN
from engine.schedules.timing.spec import EVALUATOR_VERSION
from engine.schedules.timing.zones import TZDATA_VERSION
from engine.schedules.validators import show

# --- head and list of schedules ---
# Reader of the tree of one file: its head, and its list of schedules.

_RELATED: Final = ("after", "needs", "was")
_MOST_RELATED: Final = 200
"""Maximum listed faults between schedules."""
_WRITE_LIST: Final = "write schedules: and below it a list of '- key: …'"


@dataclass(frozen=True, slots=True)
class NamedText:
    """Text of one file, with its name in messages."""

    name: str
    text: str


@dataclass
class FileReader:
    """Reader of one file.

    Attributes:
        open_ics, expectations, watch: see ``load_schedules``.
        project, revision: None if the file does not set them.
        schedules: in file order.
        queues: by name.
        hooks: in file order.
        keys: the first node of each key, valid or not.
        has_every_key: whether no schedule has a key that could not be read.
        calendars: the texts of the .ics files, by name; None of one that could not be read.
    """

    file: NamedText
    open_ics: OpenIcs | None = None
    expectations: bool = False
    watch: Callable[[], None] | None = None
    project: str | None = None
    revision: int | None = None

    def __post_init__(self) -> None:
        self.tree = Tree()
        self.report = Report(self.watch)
        self.schedules: list[Schedule] = []
        self.queues: dict[str, Queue] = {}
        self.hooks: tuple[Hook, ...] = ()
        self.keys: dict[str, Node] = {}
        self.has_every_key = False
        self.calendars: dict[str, str | None] = {}
        # Of schedules that follow others: their nodes by key, those to read after their parents
        # with their places, and those whose parents' times are not known, or in another file.
        self._related: dict[str, MapNode] = {}
        self._waiting: list[tuple[int, MapNode]] = []
        self._timeless: set[str] = set()
        self._apart: list[Schedule] = []

    def read(self) -> None:
        """Fill in the attributes from the text, and report its problems."""
        try:
            self.tree = parse_text(self.file.text, self.file.name)
            self._read_tree()
            self.report.add_found(self.tree.problems)
        except Unreadable as stop:
            self.report.add_found([stop.problem])

    def _read_tree(self) -> None:
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
        report = Report(self.watch) if self.tree.references else self.report
        fields = read_fields(root, TOP, "the file", report)
        nodes = {name: value for name, (_, value) in fields.items()}
        self._read_head(nodes)
        self.queues = read_queues(nodes.get("queues"), self.report)
        self.hooks = read_hooks(nodes.get("hooks"), self.report)
        open_ics = self._open_ics if self.open_ics else None
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
            hint = "write a list: every schedule begins with '- key: …'"
            self.report.add(listed, Code.FIELD_INVALID, message, hint, value=listed)
        elif listed.value is None:
            self._empty(fields["schedules"][0], "the file has no schedules")
        else:
            self.report.add_wrong(listed, "schedules", _WRITE_LIST)

    def _open_ics(self, calendar: str) -> str:
        assert self.open_ics is not None  # noqa: S101 - it is asked only where there is one
        self.calendars[calendar] = None
        self.calendars[calendar] = found = self.open_ics(calendar)
        return found

    def _read_list(self, listed: ListNode, shared: Shared) -> None:
        if not listed.items and not listed.partial:
            self._empty(listed, "the file has no schedules")
        self.has_every_key = not listed.partial
        items, listed.items = listed.items[::-1], []
        found: list[Schedule | None] = []
        while items:
            node = items.pop()  # frees its part of the tree, which is larger than the text
            late = self._is_late(node, len(found))
            schedule = None if late else read_schedule(node, shared, self.report)
            found.append(schedule)
            self._check_expectations(schedule, node)
            self._check_twin(node)
        self._read_related(found, shared)

    def _is_late(self, node: Node, place: int) -> bool:
        """Note a schedule that follows others; return whether it is read after its parents."""
        if not isinstance(node, MapNode) or not any(name in node.entries for name in _RELATED):
            return False
        key = node.entries["key"][1].plain() if "key" in node.entries else None
        if isinstance(key, str):
            self._related.setdefault(key, node)
        late = not {*KINDS} & node.entries.keys() and any(parents_of(_sound(node)))
        if late:
            self._waiting.append((place, node))
        return late

    def _read_related(self, found: list[Schedule | None], shared: Shared) -> None:
        """Read the schedules that take their parents' times."""
        for place, node, schedule in self._read_late(found, shared):
            found[place] = schedule
            self._check_expectations(schedule, node)
        self.schedules = [each for each in found if each is not None]

    def _read_late(
        self, found: Sequence[Schedule | None], shared: Shared
    ) -> Iterator[tuple[int, Node, Schedule]]:
        known = {schedule.key: schedule for schedule in found if schedule}
        known |= {schedule.was: schedule for schedule in found if schedule and schedule.was}
        waiting, before = self._waiting, -1
        while waiting and len(waiting) != before:
            before, rest = len(waiting), []
            for place, node in waiting:
                taken = inherited(_sound(node), known)
                if taken is None:
                    rest.append((place, node))
                elif schedule := read_schedule(node, shared, self.report, taken):
                    known.setdefault(schedule.key, schedule)
                    yield place, node, schedule
            waiting = rest
        for place, node in waiting:
            schedule = read_schedule(node, shared, self.report, timeless=True)
            if schedule:
                self._timeless.add(schedule.key)
                if not any(key in self.keys for key in parents_of(_sound(node))):
                    self._apart.append(schedule)
                yield place, node, schedule

    def judge(self, schedules: Sequence[Schedule], keys: Collection[str] | None) -> None:
        """Report the faults between the schedules of all files whose place is in this one."""
        faults = [*chain_faults(schedules, keys, self._timeless), *self._apart_faults(keys or ())]
        here = ((key, fault) for key, fault in faults if key in self._related)
        for key, fault in islice(here, _MOST_RELATED):
            report_faults([fault], self._related[key], self.report, key)

    def _apart_faults(self, keys: Collection[str]) -> Iterator[tuple[str, Fault]]:
        """Yield a fault for each schedule that would take the times of a parent elsewhere."""
        for schedule in self._apart:
            parent = next((rule.parent for rule in schedule.follows if rule.parent in keys), None)
            if parent is not None:
                message = f"the schedule does not say when it fires, and its parent {parent} is"
                hint = "give one of every, everyMs, cron and at"
                fault = Fault((), Code.KIND_INVALID, f"{message} in another file", hint)
                yield schedule.key, fault

    def _check_expectations(self, schedule: Schedule | None, node: Node) -> None:
        if schedule is not None and self.expectations and schedule.expect:
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
            hint = "give every schedule a key of its own"
            self.report.add(
                value, Code.KEY_DUPLICATE, message, hint, key=show(value.value)[1:-1], value=value
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
            hint = "write a mapping, for example {timezone: America/Sao_Paulo}"
            self.report.add_wrong(node, "defaults", hint)

    def top(self, field: str) -> Node:
        """Return the value of a field of the file, or the whole of it."""
        root = self.tree.root
        pair = root.entries.get(field) if isinstance(root, MapNode) else None
        return pair[1] if pair else root or Scalar(None, 0, 0)

    def complain(self, place: Node, message: str, hint: str) -> None:
        """Report what contradicts another file."""
        value = place if isinstance(place, Scalar) else None
        self.report.add(place, Code.FIELD_INVALID, message, hint, value=value)

    def named(self, problems: Sequence[Problem], *, alone: bool) -> Sequence[Problem]:
        """Return problems with the name of the file, unless it is the only one."""
        return problems if alone else [replace(each, file=self.file.name) for each in problems]

    def _empty(self, place: Node, message: str) -> None:
        self.report.add(place, Code.FILE_EMPTY, message, _WRITE_LIST)


def _sound(node: MapNode) -> dict[str, Any]:
    """Return the fields of a schedule that could be read, without its input."""
    values = {name: value.plain() for name, (_, value) in node.entries.items() if name != "input"}
    return {name: value for name, value in values.items() if value is not BROKEN}


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
# Loader of one file. It reports all problems at once, each with its place and a hint.

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
    code, hint, line, column = Code.YAML_INVALID, "save it as UTF-8", 0, 0
    # Lone surrogates are refused later; here they must not raise.
    encoded = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
    if len(encoded) > MAX_BYTES:
        code, hint = Code.FILE_TOO_LARGE, "split it into several projects"
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
    raise ScheduleFileError(name, (Problem(code, message, hint, line, column),))


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
    found = [FileReader(each, open_ics(each.name), expectations, watch) for each in texts]
    for each in found:
        each.read()
    # A parent may have been renamed in another file.
    schedules = with_present_parents([one for each in found for one in each.schedules])
    keys = {key for each in found for key in each.keys}
    known = keys if all(each.has_every_key for each in found) else None
    for each in found:
        each.judge(schedules, known)
    _report_contradictions(found)
    alone = len(texts) == 1
    problems = [one for each in found for one in each.named(each.report.sorted(), alone=alone)]
    warnings = [one for each in found for one in each.named(each.tree.warnings, alone=alone)]
    digests = [file_digest(each.file.text, each.file.name, each.calendars) for each in found]
    calendars = tuple((each.file.name, calendar) for each in found for calendar in each.calendars)
    name = texts[0].name if alone else name
    if problems:
        raise ScheduleFileError(name, cut(problems), joint_digest(digests, warned=False), calendars)
    return ScheduleFile(
        project=next((each.project for each in found if each.project), DEFAULT_PROJECT),
        revision=next((each.revision for each in found if each.revision is not None), None),
        schedules=tuple(schedules),
        name=name,
        digest=joint_digest(digests, warned=bool(warnings)),
        warnings=tuple(warnings),
        calendars=calendars,
        queues={name: queue for each in found for name, queue in each.queues.items()},
        hooks=tuple(hook for each in found for hook in each.hooks),
    )


def _report_contradictions(found: Sequence[FileReader]) -> None:
    """Report where a file contradicts an earlier one."""
    for name in ("project", "revision"):
        stating = [each for each in found if getattr(each, name) is not None]
        for each in stating[1:]:
            value, agreed = getattr(each, name), getattr(stating[0], name)
            if value != agreed:
                message = f"{name} is {value} here and {agreed} in {stating[0].file.name}"
                each.complain(
                    each.top(name), message, "write the same in both, or in one of them only"
                )
    for name, each, owner in _twins(found, lambda of: of.queues):
        message, place = f"queue {name} is declared in {owner.file.name}, too", each.top("queues")
        if isinstance(place, MapNode):
            place = place.entries[name][0]
        each.complain(place, message, "declare it in one of them; it holds for the whole project")
    hooks = _twins(found, lambda of: [f"{hook.label} {hook.place}" for hook in of.hooks])
    for name, each, owner in hooks:
        message = f"a hook to {name.split()[1]} has the url of one in {owner.file.name}"
        each.complain(each.top("hooks"), message, "write both as one")
    for key, each, owner in islice(_twins(found, lambda of: of.keys), _MOST):
        place = owner.keys[key]
        message = f"key '{key}' is taken by the schedule at {owner.file.name}:{place.line}"
        hint, node = "give every schedule a key of its own", each.keys[key]
        each.report.add(node, Code.KEY_DUPLICATE, message, hint, key=key, value=node)


def _twins(
    found: Sequence[FileReader], names: Callable[[FileReader], Iterable[str]]
) -> Iterator[tuple[str, FileReader, FileReader]]:
    """Yield each name that an earlier file has too, with its file and the earlier one."""
    first: dict[str, FileReader] = {}
    for each in found:
        for name in names(each):
            owner = first.setdefault(name, each)
            if owner is not each:
                yield name, each, owner
