"""Sentences about calls that Temporal's sandbox refuses: the call, its place, and the hint.

The SDK's own advice is to pass the import through, which makes such a call possible and the run
non-deterministic. Nothing here changes what is refused, or how a run ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from types import FrameType, TracebackType
from typing import Final

from temporalio.workflow import NondeterminismError

# --- places ---
# The lines of a traceback or a running stack, and which of them belong to the user.

_PYTHON: Final = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - pathlib is restricted in the sandbox
_LIBRARIES: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A line of code that was running.

    Attributes:
        module: the name of its module.
        file: the file, from the folder that the module is imported from.
        line: the line, from 1.
        column: the column, from 1; 0 if it is unknown.
        function: the name of the function, or ``<module>``.
        is_users: whether it is neither Python's, nor the engine's, nor a library's.
    """

    module: str
    file: str
    line: int
    column: int
    function: str
    is_users: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def places_of(error: BaseException) -> list[CodePlace]:
    """Return the lines that an error has passed through, outermost first."""
    return list(_places(error.__traceback__))


def _places(trace: TracebackType | None) -> Iterator[CodePlace]:
    while trace is not None:
        yield frame_place(trace.tb_frame, trace.tb_lineno, trace.tb_lasti)
        trace = trace.tb_next


def frame_place(frame: FrameType, line: int | None = None, last: int | None = None) -> CodePlace:
    """Return the place of a frame.

    Args:
        frame: of a traceback, or one that is running.
        line: the line in a traceback; by default the one that runs.
        last: the position of the instruction in a traceback; by default the one that runs.
    """
    code = frame.f_code
    module = str(frame.f_globals.get("__name__") or "")
    at = frame.f_lasti if last is None else last
    positions = next(islice(code.co_positions(), at // 2, None), None)
    column = positions[2] if positions else None
    return CodePlace(
        module,
        shown_file(code.co_filename, module),
        frame.f_lineno if line is None else line,
        0 if column is None else column + 1,
        code.co_name,
        is_users_code(code.co_filename, module),
    )


def is_users_code(file: str, module: str) -> bool:
    """Return whether a module is the user's, by its file and its name."""
    if file.startswith("<") or module.partition(".")[0] in {"engine", "temporalio"}:
        return False
    return not any(each in file for each in _LIBRARIES) and not file.startswith(_PYTHON)


def shown_file(file: str, module: str) -> str:
    """Return ``workflows/report.py`` for the module ``workflows.report``, wherever it lies."""
    parts = PurePath(file).parts
    names = module.split(".")
    if parts[-1] == "__init__.py":
        names.append("__init__")
    if parts[-1].removesuffix(".py") != names[-1]:
        return parts[-1]  # a script, or text that was executed
    return "/".join(parts[-len(names) :])


# --- sentences ---

_STEP: Final = "do it in a step"
_HINTS: Final = {
    "__builtins__.input": "wait for a signal: await ctx.wait_for(...)",
    "asyncio": _STEP,
    "concurrent": "use ctx.parallel, or do it in a step",
    "datetime.date.today": "use ctx.now().date()",
    "datetime.datetime": "use ctx.now()",
    "multiprocessing": "use ctx.parallel, or do it in a step",
    "os.environ": "read it in a step",
    "os.getenv": "read it in a step",
    "os.urandom": "use ctx.random(), or make a secret in a step",
    "random": "use ctx.random()",
    "secrets": "use ctx.random(), or make a secret in a step",
    "threading": "use ctx.parallel, or do it in a step",
    "time": "use ctx.now()",
    "time.sleep": "use await ctx.sleep(...)",
    "uuid": "use ctx.uuid()",
}
"""What to write instead, by the beginning of the name; what is not listed belongs in a step."""

_NOT_SHOWN: Final = ("__builtins__.", "datetime.datetime.", "datetime.date.")


def hint_of(name: str) -> str:
    """Return what a workflow does instead of a call, by the full name of what it calls."""
    parts = name.split(".")
    beginnings = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((_HINTS[each] for each in beginnings if each in _HINTS), _STEP)


def shown_name(name: str) -> str:
    """Return a name as users write it: ``datetime.now()``, ``open()``, ``os.environ``."""
    if name.startswith("os.environ"):
        return "os.environ"
    bare, _, hook = name.partition(".__")
    called = hook == "call__" or name.startswith("__builtins__.")
    for prefix in _NOT_SHOWN:
        if bare.startswith(prefix):
            last = prefix.removesuffix(".").rpartition(".")[2]
            bare = bare.removeprefix(prefix)
            bare = bare if prefix == _NOT_SHOWN[0] else f"{last}.{bare}"
    return f"{bare}()" if called else bare


def restricted_name(error: BaseException) -> str | None:
    """Return the full name of what a workflow must not use, if this error refuses it.

    A message that the application chose for its own restrictions stands.
    """
    if isinstance(error, NondeterminismError):
        # Its subclass is not imported: the SDK's worker is more than a client needs.
        name: str | None = getattr(error, "qualified_name", None)
        return name if str(error).startswith(f"Cannot access {name} from") else None
    if isinstance(error, NotImplementedError):
        # A run's event loop has no threads, sockets or processes.
        places = places_of(error)
        if places and places[-1].module == "asyncio.events":
            asked = [each for each in places if each.module.startswith("asyncio.")]
            return f"asyncio.{asked[0].function}.__call__"
    return None


def refused_text(error: BaseException) -> str | None:
    """Return why a workflow cannot do what it has tried; None for any other error."""
    name = restricted_name(error)
    if name is None:
        return None
    place = next((each for each in reversed(places_of(error)) if each.is_users), None)
    where = f" ({place})" if place else ""
    return f"a workflow cannot use {shown_name(name)}{where}; {hint_of(name)}"
