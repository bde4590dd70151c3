"""Reads a schedule file: every problem at once, each with its place and a cure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from engine.errors import Code, Problem, ScheduleFileError
from engine.schedules.calendars import OpenIcs
from engine.schedules.file_digest import file_digest, joint_digest
from engine.schedules.file_reading import Asked, Reading
from engine.schedules.json_text import JsonText
from engine.schedules.nodes import MAX_BYTES, Tree, Unreadable
from engine.schedules.schedule_file import ScheduleFile
from engine.schedules.sound_json import read_sound_json
from engine.schedules.yaml_text import read_yaml

DEFAULT_PROJECT: Final = "default"

_JSON_START = re.compile(r"\s*[{\[]")


def load_schedules(
    text: str | bytes,
    name: str = "schedules.yaml",
    *,
    open_ics: OpenIcs | None = None,
    expectations: bool = False,
) -> ScheduleFile:
    """Return the schedules that ``text`` declares.

    Args:
        text: YAML 1.2 or JSON, of at most 32 megabytes and twenty levels; bytes are UTF-8.
        name: what the file is called in messages; ``.json`` at its end means JSON.
        open_ics: returns the text of a calendar that the file names; without it, none can be.
        expectations: whether an ``expect:`` that does not come true is a problem. It is for
            whoever checks a file; nobody stops firing for it.

    Raises:
        ScheduleFileError: the text cannot be used. ``problems`` lists everything that is
            wrong, sorted by place.
    """
    read = read_file_text(text, name, open_ics=open_ics, expectations=expectations)
    warnings = tuple(read.reading.tree.warnings)
    return ScheduleFile(
        project=read.reading.project or DEFAULT_PROJECT,
        revision=read.reading.revision,
        schedules=tuple(read.reading.schedules),
        name=name,
        digest=joint_digest([read.digest], warned=bool(warnings)),
        warnings=warnings,
        calendars=read.calendars,
        queues=read.reading.queues,
    )


class FileText(NamedTuple):
    """What a sound text says, its digest, and the calendars it names; see `ScheduleFile`."""

    reading: Reading
    digest: str
    calendars: tuple[tuple[str, str], ...]


def read_file_text(
    text: str | bytes,
    name: str,
    *,
    open_ics: OpenIcs | None = None,
    expectations: bool = False,
    alone: bool = True,
) -> FileText:
    """Return what ``load_schedules`` makes a file of, with the same arguments and errors.

    One that is not ``alone`` may name parents that are in other files.
    """
    calendars: dict[str, str | None] = {}

    def opened(calendar: str) -> str:
        assert open_ics is not None  # noqa: S101 - it is asked only where there is one
        calendars[calendar] = None
        calendars[calendar] = found = open_ics(calendar)
        return found

    text = decoded(text, name).removeprefix("\ufeff")
    try:
        asked = Asked(open_ics and opened, expectations, alone)
        reading = _read_text(text, name, asked)
        problems = reading.report.sorted()
    except Unreadable as stop:
        reading, problems = Reading(Tree()), (stop.problem,)
    digest = file_digest(text, name, calendars)
    named = tuple((name, calendar) for calendar in calendars)
    if problems:
        raise ScheduleFileError(name, problems, digest, named)
    return FileText(reading, digest, named)


def _read_text(text: str, name: str, asked: Asked) -> Reading:
    reading = _read_soundly(text, name, asked)
    if reading is None:
        reading = Reading(parse_text(text, name), asked)
        reading.read()
        reading.report.add_found(reading.tree.problems)
    return reading


def decoded(data: str | bytes, name: str) -> str:
    """Return the text of the file ``name``.

    Raises:
        ScheduleFileError: it is too large or not UTF-8; the problem says where.
    """
    try:
        return _decoded(data)
    except Unreadable as stop:
        raise ScheduleFileError(name, (stop.problem,)) from None


def _decoded(text: str | bytes) -> str:
    if len(text) > MAX_BYTES:
        raise _too_large()
    if isinstance(text, str):
        # A lone surrogate is refused in a moment; until then it must not break anything.
        if len(text.encode("utf-8", errors="surrogatepass")) > MAX_BYTES:
            raise _too_large()
        return text
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable(Problem(Code.YAML_INVALID, "the file is UTF-16", "save it as UTF-8"))
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        before = text[text.rfind(b"\n", 0, error.start) + 1 : error.start]
        column = len(before.decode("utf-8", errors="replace")) + 1
        message = f"the byte 0x{text[error.start]:02x} is not UTF-8"
        raise Unreadable(
            Problem(Code.YAML_INVALID, message, "save it as UTF-8", line, column)
        ) from None


def _too_large() -> Unreadable:
    message = f"the file is larger than {MAX_BYTES // 1_000_000} MB"
    return Unreadable(Problem(Code.FILE_TOO_LARGE, message, "split it into several projects"))


def _read_soundly(text: str, name: str, asked: Asked) -> Reading | None:
    """Read JSON in the quick way; None when it is not JSON, or anything is wrong with it."""
    if not name.lower().endswith(".json") and not _JSON_START.match(text):
        return None
    tree = Tree()
    tree.root = read_sound_json(text)
    if tree.root is None:
        return None
    reading = Reading(tree, asked)
    reading.read()
    return None if reading.report.sorted() else reading


def parse_text(text: str, name: str) -> Tree:
    """Return the tree of a text, with places. See ``read_yaml`` and ``JsonText``."""
    if name.lower().endswith(".json"):
        return JsonText(text).read()
    if _JSON_START.match(text):
        # JSON is YAML, but its escapes, and tabs without libyaml, need a reader of JSON.
        try:
            return JsonText(text).read()
        except Unreadable as stop:
            if stop.problem.code == Code.FILE_TOO_LARGE:
                raise
    return read_yaml(text)
