"""Reads the tree of one schedule file: its head, and its list of schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from engine.errors import Code
from engine.schedules.calendars import OpenIcs, read_calendars
from engine.schedules.entries import Shared, read_fields, read_schedule, report_faults
from engine.schedules.expectations import unmet
from engine.schedules.families import Families
from engine.schedules.fields import key_check, show
from engine.schedules.model import Schedule
from engine.schedules.nodes import BROKEN, Mapping, Node, Scalar, Sequence, Tree
from engine.schedules.queues import Queue, read_queues
from engine.schedules.report import Report

_TOP: Final = (
    "$schema", "version", "project", "revision", "calendars", "defaults", "queues", "schedules",
)  # fmt: skip
_MAX_REVISION: Final = 2**63 - 1  # PostgreSQL's bigint
_WRITE_LIST: Final = "write schedules: and below it a list of '- key: …'"


class Asked(NamedTuple):
    """How a text is to be read; see ``file.read_file_text``."""

    open_ics: OpenIcs | None = None
    expectations: bool = False
    alone: bool = True


_AS_EVER: Final = Asked()


@dataclass
class Reading:
    """One reading of one tree.

    Attributes:
        project, revision: None where the file does not say.
        schedules: in the file's order.
        queues: by name.
    """

    tree: Tree
    asked: Asked = _AS_EVER
    project: str | None = None
    revision: int | None = None

    def __post_init__(self) -> None:
        self.report = Report()
        self.schedules: list[Schedule] = []
        self.queues: dict[str, Queue] = {}
        self.families = Families()

    def read(self) -> None:
        """Fill in what the file says, and report what is wrong with it."""
        root = self.tree.root
        if isinstance(root, Mapping):
            self._read_top(root)
        elif isinstance(root, Sequence):
            self._read_list(root, Shared())
        elif root is None or root.value is None:
            if not self.tree.problems:
                self._empty(Scalar(None, 0, 0), "the file is empty")
        elif root.value is not BROKEN and not self.tree.problems:
            message = f"the file is {show(root.value)}"
            self.report.add(root, Code.FIELD_INVALID, message, _WRITE_LIST, value=root)

    def _read_top(self, root: Mapping) -> None:
        report = Report() if self.tree.references else self.report
        fields = read_fields(root, _TOP, "the file", report)
        nodes = {name: value for name, (_, value) in fields.items()}
        self._check_schema(nodes.get("$schema"))
        self._check_version(nodes.get("version"))
        self._read_project(nodes.get("project"))
        self._read_revision(nodes.get("revision"))
        self.queues = read_queues(nodes.get("queues"), self.report)
        shared = Shared(read_calendars(nodes.get("calendars"), self.asked.open_ics, self.report))
        self._read_defaults(nodes.get("defaults"), shared)
        listed = nodes.get("schedules")
        if isinstance(listed, Sequence):
            self._read_list(listed, shared)
        elif listed is None:
            # Where the text itself is broken, the list may be in the part not read.
            if not root.partial and not self.tree.references:
                self._empty(root, "the file has no schedules")
        elif isinstance(listed, Mapping):
            message = "schedules is a mapping"
            cure = "write a list: every schedule begins with '- key: …'"
            self.report.add(listed, Code.FIELD_INVALID, message, cure, value=listed)
        elif listed.value is None:
            self._empty(fields["schedules"][0], "the file has no schedules")
        elif listed.value is not BROKEN:
            message = f"schedules is {show(listed.value)}"
            self.report.add(listed, Code.FIELD_INVALID, message, _WRITE_LIST, value=listed)

    def _read_list(self, listed: Sequence, shared: Shared) -> None:
        if not listed.items and not listed.partial:
            self._empty(listed, "the file has no schedules")
        first: dict[str, Node] = {}
        items, listed.items = listed.items[::-1], []
        found: list[Schedule | None] = []
        while items:
            node = items.pop()  # and with it its part of the tree, which is larger than the text
            late = self.families.note(node, len(found))
            schedule = None if late else read_schedule(node, shared, self.report)
            found.append(schedule)
            self._check_expectations(schedule, node)
            self._check_twin(node, first)
        self._read_families(found, shared, first)

    def _read_families(
        self, found: list[Schedule | None], shared: Shared, first: dict[str, Node]
    ) -> None:
        """Read what takes its parents' times, and judge who follows whom."""
        alone, families = self.asked.alone, self.families
        families.keys = first.keys()
        for place, node, schedule in families.read(found, shared, self.report, alone=alone):
            found[place] = schedule
            self._check_expectations(schedule, node)
        self.schedules = [schedule for schedule in found if schedule is not None]
        if alone:
            families.judge(self.schedules, families.keys, self.report)

    def _check_expectations(self, schedule: Schedule | None, node: Node) -> None:
        if schedule is not None and self.asked.expectations and schedule.expect:
            report_faults(unmet(schedule), node, self.report, schedule.key)

    def _check_twin(self, node: Node, first: dict[str, Node]) -> None:
        """Report a key that an earlier schedule has, wrong as the rest of either may be."""
        pair = node.entries.get("key") if isinstance(node, Mapping) else None
        if pair is None or not isinstance(pair[1], Scalar) or not isinstance(pair[1].value, str):
            return
        value = pair[1]
        earlier = first.setdefault(value.value, value)
        if earlier is not value:
            message = f"key {show(value.value)} is taken by the schedule on line {earlier.line}"
            cure = "give every schedule a key of its own"
            self.report.add(
                value, Code.KEY_DUPLICATE, message, cure, key=show(value.value)[1:-1], value=value
            )

    def _check_version(self, node: Node | None) -> None:
        version = 1 if node is None else node.plain()
        if node is not None and version is not BROKEN and (version != 1 or version is True):
            message = f"version is {show(version)}"
            self.report.add(node, Code.FIELD_INVALID, message, "write version: 1", value=node)

    def _read_project(self, node: Node | None) -> None:
        if node is None or node.plain() is BROKEN:
            return
        with self.report.refusals(node):
            self.project = key_check("project")(node.plain())

    def _read_revision(self, node: Node | None) -> None:
        revision = None if node is None else node.plain()
        if node is None or revision is BROKEN:
            return
        if type(revision) is int and 0 <= revision <= _MAX_REVISION:  # a truth value is an int too
            self.revision = revision
            return
        message = f"revision is {show(revision)}"
        self.report.add(
            node, Code.FIELD_INVALID, message, "write a whole number from 0 upwards", value=node
        )

    def _check_schema(self, node: Node | None) -> None:
        """Let editors have it: JSON has no comment that could name the schema."""
        if node is not None and not isinstance(named := node.plain(), str) and named is not BROKEN:
            message, cure = (
                f"$schema is {show(named)}",
                'write "schedules.schema.json", or remove it',
            )
            self.report.add(node, Code.FIELD_INVALID, message, cure, value=node)

    def _read_defaults(self, node: Node | None, shared: Shared) -> None:
        if isinstance(node, Mapping):
            shared.read(node, self.report)
        elif node is not None and node.plain() not in (None, BROKEN):
            message = f"defaults is {show(node.plain())}"
            cure = "write a mapping, for example {timezone: America/Sao_Paulo}"
            self.report.add(node, Code.FIELD_INVALID, message, cure, value=node)

    def _empty(self, place: Node, message: str) -> None:
        self.report.add(place, Code.FILE_EMPTY, message, _WRITE_LIST)
