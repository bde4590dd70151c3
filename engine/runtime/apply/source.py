"""Sources of schedules: a file, several files or a folder; positions in them."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

from engine.errors import Code, Problem, ScheduleFileError, WorkflowUnknown
from engine.runtime.apply.child_parser import CancelToken, calendars_beside, parse, unreadable
from engine.runtime.apply.edits import ApplyReport
from engine.schedules import Declaration, ScheduleFile, cron_doubts, other_instants
from engine.schedules.loader.declarations import inline_file, joined, joined_digest
from engine.schedules.loader.loader import (
    DEFAULT_PROJECT,
    NamedText,
    decoded,
    file_digest,
    joint_digest,
    parse_text,
)
from engine.schedules.loader.nodes import (
    MAX_BYTES,
    ListNode,
    MapNode,
    Node,
    Scalar,
    Unreadable,
    descend,
)

# --- sources ---

__all__ = ["DEFAULT_PROJECT", "Paths", "Source", "digest_of", "inline_file", "read_file"]

Paths: TypeAlias = "str | Path | Sequence[str | Path]"

DEFAULT_FILE: Final = Path("schedules.yaml")
"""The file of a worker that names none. It need not be there."""

_ENDINGS: Final = {".yaml", ".yml", ".json"}

# The expression begins with a letter and looks back from it: in megabytes of text that is ten times
# faster than a search for the beginning of a line.
_PROJECT = re.compile(r"""project:(?<![^\n]project:)[ \t]*["']?([a-z0-9._-]+)""")
_JSON_HEAD = re.compile(
    r"""\s*\{\s*(?:(?:"(?:version|revision)"\s*:\s*\d+|"\$schema"\s*:\s*"[^"\\]*")\s*,\s*)*"""
    r""""project"\s*:\s*"([a-z0-9._-]+)"\s*[,}]"""
)
_HEAD = re.compile(
    r"""(?:[ \t]*(?:#.*|---|version:[ \t]*1|revision:[ \t]*\d+)?[ \t]*\n)*"""
    r"""project:[ \t]+(?:([a-z0-9._-]+)|"[a-z0-9._-]+"|'[a-z0-9._-]+')[ \t]*(?:#.*)?\n"""
)
"""Matches a text that declares its project first, so that nothing later can declare another."""


class Source:
    """A schedule file, several, or a folder: every .yaml, .yml and .json in it, by name.

    Args:
        paths: one path or several.
        declared: schedules that code declares; they join those of the files.
        required: whether a worker is to have it: without it, and without schedules in the ledger,
            the worker ends.
    """

    def __init__(
        self, paths: Paths, declared: Sequence[Declaration] = (), *, required: bool = True
    ) -> None:
        self.declared, self.required = tuple(declared), required
        several = [paths] if isinstance(paths, str | os.PathLike) else paths
        self.paths = [Path(path) for path in several]
        self.name = ", ".join(map(str, self.paths))

    def read(self, *, expectations: bool = False, token: CancelToken | None = None) -> ScheduleFile:
        """Read and check everything. Blocks for seconds on a large text: call it from a thread.

        Raises:
            ScheduleFileError: lists every problem, also files that cannot be read.
            ParseCancelled: ``token`` was stopped.
        """
        texts = self.texts()
        try:
            file = parse(texts, self.name, expectations=expectations, token=token)
            return joined(file, self.declared, self._place_of)
        except ScheduleFileError as error:
            if error.digest and self.declared:  # that of the next look, which knows them too
                error.digest = Look(texts, self.declared).digest(error)
            raise

    def _place_of(self, key: str) -> str:
        file, node = _schedule_nodes(Source(self.paths)).get(key, (self.name, None))
        return f"{file}:{node.line}" if node else file

    def is_there(self) -> bool:
        """Return whether any of its files or folders exists."""
        return any(path.exists() for path in self.paths)

    def look(self) -> Look:
        """Return a ``Look`` at the current files, without parsing them.

        Raises:
            ScheduleFileError: a file cannot be read.
        """
        return Look(self.texts(), self.declared)

    def texts(self) -> list[NamedText]:
        """Return the current texts of the files.

        Raises:
            ScheduleFileError: a file cannot be read.
        """
        files = [file for path in self.paths for file in _files(path)]
        if not files:
            raise unreadable(self.name, "no schedule file is named", "name one, or a folder")
        return [NamedText(str(file), _text(file)) for file in files]


def declaring(
    source: Source | ScheduleFile, declared: Sequence[Declaration]
) -> Source | ScheduleFile:
    """Return a source with the schedules that code declares.

    Raises:
        ScheduleFileError: it is loaded already, and they do not fit.
    """
    if isinstance(source, Source):
        return Source(source.paths, declared, required=source.required)
    return joined(source, declared, lambda _: source.name)


class Look:
    """Digest and project of a source, derived from its texts without parsing.

    Args:
        texts: all texts of the source.
        declared: schedules that code declares beside them.
    """

    def __init__(self, texts: Sequence[NamedText], declared: Sequence[Declaration] = ()) -> None:
        self._texts, self._declared = texts, declared

    def digest(self, last: ScheduleFile | ScheduleFileError | None = None) -> str:
        """Return the digest that parsing would give if calendars and warnings are as in ``last``.

        The texts alone do not show which calendars a file names, nor whether parsing warns.
        Without ``last`` neither is assumed; parsing a file that has either gives another digest.
        """
        calendars = last.calendars if last else ()
        digests = [
            _digest(each, [calendar for name, calendar in calendars if name == each.name])
            for each in self._texts
        ]
        warned = isinstance(last, ScheduleFile) and bool(last.warnings)
        return joined_digest(joint_digest(digests, warned=warned), self._declared)

    def project(self) -> str:
        """Return the project that the texts, even invalid ones, seem to declare."""
        found = (_JSON_HEAD.match(each.text) or _PROJECT.search(each.text) for each in self._texts)
        return next((line[1] for line in found if line), DEFAULT_PROJECT)

    def is_certain(self) -> bool:
        """Return whether the texts, if valid, cannot declare another project than ``project()``."""
        return all(_is_plain(each.text) for each in self._texts)


def read_file(
    path: Path, *, expectations: bool = False, declared: Sequence[Declaration] = ()
) -> ScheduleFile:
    """Read and check a schedule file, or a folder of them. See ``Source.read``.

    Raises:
        ScheduleFileError: lists every problem, also files that cannot be read.
    """
    return Source(path, declared).read(expectations=expectations)


def digest_of(source: Source, last: ScheduleFile | ScheduleFileError | None) -> str:
    """Return the digest of the files, see ``Look.digest``, or the error if one is unreadable."""
    try:
        return source.look().digest(last)
    except ScheduleFileError as error:
        return str(error)


def _is_plain(text: str) -> bool:
    if _HEAD.match(text) or _JSON_HEAD.match(text):
        return True
    return "project" not in text and "\\" not in text


def _files(path: Path) -> list[Path]:
    """Return the path itself, or the schedule files of a folder."""
    try:
        if not path.is_dir():
            return [path]
        found = sorted(file for file in path.iterdir() if _is_schedules(file))
    except OSError as error:
        what, hint = f"it cannot be read: {error.strerror}", "check what it is and who may read it"
        raise unreadable(str(path), what, hint) from None
    if not found:
        what, hint = "the folder has no schedule file", "put a .yaml, .yml or .json file into it"
        raise unreadable(str(path), what, hint)
    return found


def _is_schedules(file: Path) -> bool:
    name = file.name.lower()
    # Editors write hidden files beside the real one, and `sched init` writes the schema there.
    other = name.startswith(".") or name.endswith(".schema.json")
    return file.suffix.lower() in _ENDINGS and not other and file.is_file()


def _digest(each: NamedText, named: Sequence[str]) -> str:
    open_calendar = calendars_beside(each.name)
    calendars: dict[str, str | None] = dict.fromkeys(named)
    for calendar in named:
        with suppress(OSError, ValueError):  # parsing reports a missing calendar
            calendars[calendar] = open_calendar(calendar)
    return file_digest(each.text, each.name, calendars)


def _text(path: Path) -> str:
    """Return the file's text.

    Raises:
        ScheduleFileError: the file is too large, or cannot be read as UTF-8.
    """
    try:
        size = path.stat().st_size
        # A growing file, a device or a pipe can be larger than its stat size.
        data = _read(path) if size <= MAX_BYTES else b""
        size = max(size, len(data))
    except FileNotFoundError:
        what = "there is no such file"
        hint = "name the file, run in the folder that has it, or let `sched init` write a first one"
    except OSError as error:
        what, hint = f"it cannot be read: {error.strerror}", "check what it is and who may read it"
    else:
        if size <= MAX_BYTES:
            text = decoded(data, str(path))
            return text.replace("\r\n", "\n").replace("\r", "\n")
        what = f"the file is larger than {MAX_BYTES // 1_000_000} MB ({size // 1_000_000} MB)"
        too_large = Problem(Code.FILE_TOO_LARGE, what, "split it into several projects")
        raise ScheduleFileError(str(path), (too_large,))
    raise unreadable(str(path), what, hint)


# Windows has no named pipes in the file system, and without the flag it changes line ends.
_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
_BINARY: Final[int] = getattr(os, "O_BINARY", 0)


def _read(path: Path) -> bytes:
    """Return at most one byte more than a file may have; from a pipe, what its writer writes.

    Raises:
        OSError: it cannot be read, or is a pipe without a writer, which would block forever.
    """
    begun = b""
    with os.fdopen(os.open(path, os.O_RDONLY | _NONBLOCK | _BINARY), "rb") as file:
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            with suppress(BlockingIOError):  # the pipe has a writer
                begun = os.read(file.fileno(), 1)
                if not begun:
                    raise OSError(errno.EPIPE, "a pipe without a writer")
        if _NONBLOCK:
            os.set_blocking(file.fileno(), True)
        return begun + file.read(MAX_BYTES + 1 - len(begun))


# --- reading beside an event loop ---
# Cancellable reading of schedule files in a thread, beside the event loop.


async def read_aside(source: Source) -> ScheduleFile:
    """Read the source in a thread. Cancellation kills the child that parses a large one.

    Raises:
        ScheduleFileError: lists every problem.
    """
    token = CancelToken()
    reading = asyncio.create_task(asyncio.to_thread(source.read, token=token))
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        token.stop()
        await asyncio.wait([reading])
        reading.exception()  # retrieve it, so that asyncio does not log it
        raise


async def read_unless(stopping: asyncio.Event, source: Source) -> ScheduleFile | None:
    """Read the source, or return None as soon as ``stopping`` is set.

    Raises:
        ScheduleFileError: lists every problem.
    """
    reading = asyncio.create_task(read_aside(source))
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([reading, stopped], return_when=asyncio.FIRST_COMPLETED)
        return None if stopping.is_set() else await reading
    finally:
        stopped.cancel()
        reading.cancel()
        await asyncio.wait([reading])


# --- positions ---
# Source positions of fields in schedule files, found again when there is something to report.

_LARGEST: Final = 500_000
"""Largest text, in characters, that is parsed again: about a second."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A problem of one schedule, with the path of the field that causes it."""

    code: Code
    key: str
    message: str
    hint: str
    path: tuple[str | int, ...]


def locate(found: Sequence[Mismatch], source: Source | ScheduleFile | None) -> list[Problem]:
    """Return problems with file, line and column, as far as they can be found.

    Args:
        found: the mismatches.
        source: the files; they are parsed again, unless they are large or no longer readable. A
            ``ScheduleFile`` is used only if its files are unchanged.
    """
    if not found:
        return []
    files = _still_there(source) if isinstance(source, ScheduleFile) else source
    nodes = _schedule_nodes(files) if files else {}
    return [_problem(each, nodes) for each in found]


def _still_there(file: ScheduleFile) -> Source | None:
    """Return the source of a file if its digest is unchanged."""
    source = Source(Path(file.name), file.declared)
    try:
        return source if source.look().digest() == file.digest else None
    except ScheduleFileError:
        return None


_MEANT: Final = re.compile(r"#\s*sched:\s*ok\b")
"""Comment of a line whose cron expression is meant as it is."""
_COMPARED: Final = 1_000
"""Schedules of a file that croniter computes too; it may take 30 ms for one."""


def doubtful(
    file: ScheduleFile, source: Source, now: datetime, *, mistakes: bool = True
) -> list[Problem]:
    """Return the warnings about cron expressions, without those that the file silences.

    Args:
        file: what was read; times that a schedule takes from a parent are that one's.
        source: where it was read from.
        now: see ``cron_doubts``.
        mistakes: whether to warn of probable mistakes, beside instants that croniter computes
            otherwise.
    """
    crons = {each.key: each.cron for each in file.schedules}
    found = [
        Mismatch(Code.CRON_DOUBTFUL, each.key, warning.message, warning.hint, ("cron",))
        for number, each in enumerate(file.schedules)
        if not any(crons.get(rule.parent) == each.cron for rule in each.follows)
        for warning in (
            *(cron_doubts(each, now) if mistakes else ()),
            *(other_instants(each, now) if number < _COMPARED else ()),
        )
    ]
    if not found:
        return []
    lines = {each.name: each.text.splitlines() for each in source.texts()}
    code = {each.file: _lines_of(each.file) for each in source.declared}
    return [
        replace(each, hint=f"{each.hint}; {_silencing(each.file or '')}")
        for each in locate(found, source)
        if not _is_meant(each, crons, lines, code)
    ]


def _silencing(file: str) -> str:
    """Return what to write if an expression is meant; JSON has no comments."""
    where = "the file as YAML, with # sched: ok" if file.endswith(".json") else "# sched: ok"
    return f"if it is meant, write {where} behind it"


def _lines_of(module: str) -> list[str]:
    with suppress(OSError, ValueError):
        return Path(module).read_text(encoding="utf-8").splitlines()
    return []


def _is_meant(
    problem: Problem,
    crons: Mapping[str, str | None],
    lines: Mapping[str, Sequence[str]],
    code: Mapping[str, Sequence[str]],
) -> bool:
    """Return whether the line of a problem says so.

    In a large file its place is not known, and in code it is that of the whole decorator.
    """
    file = problem.file or ""
    if problem.line and file in lines:
        return _MEANT.search(lines[file][problem.line - 1]) is not None
    cron = crons.get(problem.key or "") or ""
    every = code[file] if file in code else [*chain.from_iterable(lines.values())]
    return any(cron in line and _MEANT.search(line) for line in every)


def unknown_workflows(known: Mapping[str, str]) -> list[Mismatch]:
    """Return a mismatch for each key whose workflow no worker can run; ``known`` says why."""
    return [
        Mismatch(WorkflowUnknown.code, key, f"{key}: {what}", "", ("workflow",))
        for key, what in known.items()
    ]


def located_remarks(report: ApplyReport, source: Source | ScheduleFile | None) -> list[str]:
    """Return the remarks of a report, those on unknown workflows with their positions."""
    mismatches = unknown_workflows(report.unknown)
    plain = {f"{each.code}: {each.message}" for each in mismatches}
    name = source.name if isinstance(source, ScheduleFile | Source) else ""
    return [
        *(remark for remark in report.remarks if remark not in plain),
        *(each.located(name) if name else each.message for each in locate(mismatches, source)),
    ]


def _schedule_nodes(source: Source) -> dict[str, tuple[str, Node]]:
    """Return the schedules of a source by key, each with the name of its file."""
    found: dict[str, tuple[str, Node]] = {
        str(each.fields["key"]): (each.file, Scalar(None, each.line, 1)) for each in source.declared
    }
    with suppress(ScheduleFileError):
        for each in source.texts():
            with suppress(Unreadable):
                for node in _schedules(each) if len(each.text) <= _LARGEST else ():
                    key = node.entries["key"][1].plain() if "key" in node.entries else None
                    if isinstance(key, str):
                        found.setdefault(key, (each.name, node))
    return found


def _schedules(file: NamedText) -> list[MapNode]:
    root = parse_text(file.text, file.name).root
    listed = root and descend(root, ["schedules"])
    items = listed.items if isinstance(listed, ListNode) else []
    return [item for item in items if isinstance(item, MapNode)]


def _problem(each: Mismatch, nodes: Mapping[str, tuple[str, Node]]) -> Problem:
    file, node = nodes.get(each.key, (None, Scalar(None, 0, 0)))
    place = descend(node, each.path)
    return Problem(
        each.code, each.message, each.hint, place.line, place.column, key=each.key, file=file
    )
