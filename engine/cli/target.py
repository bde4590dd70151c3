"""Options of commands, and the servers that a command works on."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import inspect
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn, Self, TypeVar, get_args

import typer
from typer.models import ArgumentInfo

from engine.cli.output import print_json, print_table, run_link
from engine.errors import (
    EngineError,
    LedgerTimeout,
    LedgerUnavailable,
    ScheduleFileError,
    did_you_mean,
)
from engine.runtime.apply.source import DEFAULT_FILE as _DEFAULT_FILE, Source
from engine.runtime.settings import (
    database_schema,
    database_url as environment_url,
    default_project,
    no_ledger,
    unknown_names,
)
from engine.schedules import (
    EARLIEST,
    FIRST_YEAR,
    HORIZON,
    LAST_YEAR,
    Overlap,
    from_seconds,
    parse_duration,
    zone,
)
from engine.service import ScheduleService

if TYPE_CHECKING:
    from temporalio.converter import DataConverter


T = TypeVar("T")

# --- options ---
# Options and arguments shared by several commands, so that each has one name and one help text.

DEFAULT_DATA_DIR = Path(".sched")
DEFAULT_FILE = _DEFAULT_FILE

_MOST = 1_000_000
_LAST_PORT = 65_535
_DIGITS = 18
_LAST_BUCKET = 10**_DIGITS - 1
"""Any number with 18 digits fits the database's 64-bit integer."""

_WORD = re.compile(r"[a-z0-9][a-z0-9._-]*")
_KEY = re.compile(rf"(?:^|[\s{{,-])key:\s*[\"']?({_WORD.pattern})", re.MULTILINE)
_PROJECT = re.compile(rf"^project:\s*[\"']?({_WORD.pattern})", re.MULTILINE)
_TAGS = re.compile(r"(?:^|[\s{,-])tags:\s*(\[[^\]]*\]|(?:\n\s*-\s.*)+)", re.MULTILINE)
"""A list of tags in either notation of YAML."""


def keys_in_the_file(context: typer.Context) -> list[str]:
    """Return the keys of the schedule file, for shell completion.

    Only the text is searched: this must be fast, and also work while the file is broken.
    """
    return sorted(set(_KEY.findall(_text_of_the_file(context))))


def tags_in_the_file(context: typer.Context) -> list[str]:
    """Return the tags of the schedule file, for shell completion."""
    lists = _TAGS.findall(_text_of_the_file(context))
    return sorted({word for each in lists for word in _WORD.findall(each)})


def project_of_the_file(context: typer.Context) -> list[str]:
    """Return the project of the schedule file, for shell completion."""
    return _PROJECT.findall(_text_of_the_file(context))[:1]


def _text_of_the_file(context: typer.Context) -> str:
    """Return the text of the schedule file without comments; empty if it cannot be read."""
    named = context.params.get("schedules") or os.environ.get("SCHED_SCHEDULES") or DEFAULT_FILE
    try:
        text = Path(named).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


def _number(least: int, most: int, refusal: str) -> Callable[[str | int], int]:
    """Return a parser of whole numbers, from typed text or a default.

    ``refusal`` follows the text in the error for one that is none from ``least`` to ``most``.
    """

    def read(text: str | int) -> int:
        digits = str(text)
        typed = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS
        if not typed or not least <= int(digits) <= most:
            raise typer.BadParameter(f"{text!r} {refusal}")
        return int(digits)

    return read


whole_number = _number(1, _MOST, f"is no whole number from 1 to {_MOST}; write one, as 20")
port_number = _number(
    0, _LAST_PORT, f"is no port; write a whole number up to {_LAST_PORT}, or 0 for any free one"
)
bucket_number = _number(
    0, _LAST_BUCKET, "is no bucket; write the number in the run's id, as `sched fires` shows it"
)


def parsed(text: str, parse: Callable[[str], T], option: str) -> T:
    """Return the value of an option whose parser raises ``ValueError``.

    Raises:
        typer.BadParameter: the parser refuses the text.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}; {error}", param_hint=f"'{option}'") from None


def one_of(noun: str, words: Sequence[str]) -> Callable[[str], str]:
    """Return a parser that accepts one of these words; ``noun`` describes them in its errors.

    The error for a misspelt word suggests the closest one.
    """

    def read(text: str) -> str:
        if text in words:
            return text
        hint = did_you_mean(text, words, f"write one of {', '.join(words)}")
        raise typer.BadParameter(f"{text!r} is no {noun}; {hint}")

    return read


TakeFrom = Annotated[
    str | None,
    typer.Option(
        "--take-from",
        metavar="PROJECT",
        help="The former name of this project: its keys that are in the file move to the new name.",
    ),
]
WithApplications = Annotated[
    bool,
    typer.Option(
        "--with-applications",
        help="With --take-from: move the schedules that applications declared, too.",
    ),
]
DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        metavar="FOLDER",
        help="Where `sched up` keeps its servers.",
        envvar="SCHED_DATA_DIR",
    ),
]
File = Annotated[
    Path, typer.Argument(metavar="FILE", help="The schedule file.", envvar="SCHED_SCHEDULES")
]
Schedules = Annotated[
    Path,
    typer.Option(
        "--schedules", metavar="FILE", help="The schedule file.", envvar="SCHED_SCHEDULES"
    ),
]
SameFile = Annotated[
    Path | None, typer.Option("--schedules", metavar="FILE", help="The same as FILE.")
]
TaskQueue = Annotated[
    str,
    typer.Option(
        "--task-queue",
        metavar="NAME",
        help="The task queue that this worker polls.",
        envvar="SCHED_TASK_QUEUE",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="A warning is an error.")]
CodeToo = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="PACKAGE",
        help="A package of the workflows that the file names; may be repeated.",
    ),
]
InputCode = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="PACKAGE",
        help="A package whose workflows have to fit the input; may be repeated."
        "  [env var: SCHED_IMPORTS, comma separated]",
    ),
]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="PACKAGE",
        # Not as `envvar`: typer would split it at spaces.
        help="A package of workflows or steps; may be repeated."
        "  [env var: SCHED_IMPORTS, comma separated; default: workflows,activities]",
    ),
]
SetupFunction = Annotated[
    str | None,
    typer.Option(
        "--setup",
        metavar="MODULE:FUNCTION",
        help="A function that returns the options of the Temporal client and the worker.",
        envvar="SCHED_SETUP",
    ),
]
Key = Annotated[
    str, typer.Argument(metavar="KEY", help="The schedule's key.", autocompletion=keys_in_the_file)
]
AnyKey = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="Only this schedule.", autocompletion=keys_in_the_file),
]
OfTag = Annotated[
    str | None,
    typer.Option(
        "--tag", metavar="TAG", help="Only with this tag.", autocompletion=tags_in_the_file
    ),
]
OfProject = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="NAME",
        help="Only schedules of this project.",
        autocompletion=project_of_the_file,
    ),
]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="The reason; `sched log` shows it.")
]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="KEY|RUN-ID",
        help="A schedule, or the id of a run: ours, or Temporal's run id.",
        autocompletion=keys_in_the_file,
    ),
]
At = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="When the window opens, as `sched next` shows it."),
]
Input = Annotated[
    str | None, typer.Option("--input", metavar="JSON", help="The argument of this run only.")
]
AsOverlap = Annotated[
    Overlap | None,
    typer.Option(
        "--overlap",
        metavar="POLICY",
        help=f"The overlap policy for this run: {', '.join(get_args(Overlap))}."
        "  [default: the schedule's own]",
        parser=one_of("policy", get_args(Overlap)),
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", help="Show at most N.", parser=whole_number)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def one_file(context: typer.Context, path: Path, same: Path | None) -> Path:
    """Return the file that a command's FILE or ``--schedules`` names.

    Raises:
        typer.BadParameter: the command line names two different files.
    """
    if same is None:
        return path
    source = context.get_parameter_source("path")
    if source is not None and source.name == "COMMANDLINE" and same != path:
        raise typer.BadParameter(f"{path} and --schedules {same}: name one file")
    return same


# --- JSON arguments ---

_NOT_KEPT = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""An escaped U+0000 in JSON text, which the database cannot store."""


def parse_json_input(text: str | None) -> tuple[Any, ...]:
    """Parse the argument of ``--input`` into a tuple; without it return an empty one.

    Raises:
        typer.BadParameter: it is not JSON that a run can get as input.
    """
    if text is None:
        return ()
    try:
        value = json.loads(text, parse_constant=_refuse)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        written.encode()
    except (ValueError, RecursionError):
        raise typer.BadParameter(
            f'{text[:80]!r} is no JSON; write for example \'{{"format": "pdf"}}\'',
            param_hint="'--input'",
        ) from None
    if _NOT_KEPT.search(written):
        raise typer.BadParameter("no database keeps the character U+0000", param_hint="'--input'")
    return (value,)


def _refuse(_: str) -> NoReturn:
    raise ValueError


def code_for(given: tuple[Any, ...], imports: list[str] | None) -> list[type]:
    """Return the workflows against which an input is checked: of ``--import`` or SCHED_IMPORTS.

    Raises:
        EngineError: a package of ``--import`` cannot be imported. Those of the environment need
            not be here, because they are named for workers.
    """
    # As late as possible: it loads Temporal's SDK.
    from engine.runtime.code.discovery import import_user_code, imports_from_environment

    names = imports or imports_from_environment()
    if not (given and names):
        return []
    try:
        return import_user_code(names).workflows
    except EngineError as error:
        if imports:
            raise
        typer.echo(f"the input was not checked: {error}", err=True)
        return []


# --- instants ---
# The parser of all instants on the command line, with an error message for each mistake.

_CLOCK = re.compile(r"([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?Z?")
_FIRST, _END = from_seconds(EARLIEST), from_seconds(HORIZON)

Side = Literal["ahead", "ago"]
"""Where a duration without a sign lies: after now, or before it."""


def moment(
    text: str, option: str, *, timezone: str | None = None, bare: Side | None = None
) -> datetime:
    """Parse the instant given to ``option`` and return it in UTC.

    It is ISO 8601, or relative to the clock of this machine: ``now``, ``+10m`` or ``-1h``. A date
    without a time is its midnight. With ``bare`` a time without a date, as ``19:17:40``, is the
    last or the next one on the clock of ``timezone``, or of UTC. Without an offset the value is
    local to ``timezone``; if the clock repeats that time, the first occurrence counts. Without
    ``timezone`` a date is in UTC.

    Args:
        text: what was typed.
        option: the option or argument, for error messages.
        timezone: the IANA zone of a time without an offset.
        bare: where a duration without a sign lies; None refuses it.

    Raises:
        typer.BadParameter: it is none of these, a time has neither an offset nor ``timezone``, or
            it is before 1970 or after 2100, where nothing fires.
        TimezoneInvalid: ``timezone`` is not a time zone.
    """
    hint = f"'{option}'"
    read = from_now(text, option, bare=bare) or _on_the_clock(text, timezone or "UTC", bare)
    try:
        if read is None:
            day = is_date(text)
            read = _midnight(text, timezone or "UTC") if day else datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no moment; write 2026-11-22T02:00:00Z, or a date as 2026-11-22, or"
            f" +10m or -1h from now{', or a time as 19:17:40' if bare else ''}",
            param_hint=hint,
        ) from None
    if read.tzinfo is None and timezone is not None:
        read = read.replace(tzinfo=zone(timezone).tzinfo)
    if read.tzinfo is None:
        raise typer.BadParameter(
            f"{text!r} has no offset; append Z for UTC, or an offset as -03:00", param_hint=hint
        )
    if not _FIRST <= read <= _END:
        raise typer.BadParameter(
            f"{text!r} is outside of the time in which anything fires; write a moment of the"
            f" years {FIRST_YEAR} to {LAST_YEAR}",
            param_hint=hint,
        )
    return read.astimezone(UTC)


def from_now(text: str, option: str, *, bare: Side | None = None) -> datetime | None:
    """Parse a moment that is relative to now; return None if the text is of another kind.

    Raises:
        typer.BadParameter: a signed text is no duration, or an unsigned one needs a sign.
    """
    sign, length = (text[0], text[1:]) if text[:1] in {"+", "-"} else ("", text)
    if text == "now":
        return datetime.now(UTC)
    try:
        distance = parse_duration(length)
    except ValueError as error:
        if not sign:
            return None
        raise typer.BadParameter(f"{text!r}; {error}", param_hint=f"'{option}'") from None
    if not sign and bare is None:
        raise typer.BadParameter(
            f"{text!r} may lie before or after now; write +{text} or -{text}",
            param_hint=f"'{option}'",
        )
    past = sign == "-" or (not sign and bare == "ago")
    return datetime.now(UTC) - distance if past else datetime.now(UTC) + distance


def _on_the_clock(text: str, timezone: str, bare: Side | None) -> datetime | None:
    """Return the last or the next moment at which a clock reads ``19:17`` or ``19:17:40``."""
    if bare is None or _CLOCK.fullmatch(text) is None:
        return None
    now = datetime.now(UTC).astimezone(zone("UTC" if text.endswith("Z") else timezone).tzinfo)
    read = datetime.combine(now.date(), time.fromisoformat(text.rstrip("Z").zfill(5)), now.tzinfo)
    if bare == "ago":
        return read if read <= now else read - timedelta(days=1)
    return read if read >= now else read + timedelta(days=1)


def is_date(text: str) -> bool:
    """Return whether the text is a date without a time."""
    with contextlib.suppress(ValueError):
        date.fromisoformat(text)
        return True
    return False


def _midnight(text: str, timezone: str) -> datetime:
    return datetime.combine(date.fromisoformat(text), time(), zone(timezone).tzinfo)


# --- environment ---
# The ledger that a command uses: the environment's, or that of a ``sched up`` in the same folder.

UP_FILE = "up.json"


@dataclass(frozen=True, slots=True)
class Target:
    """The servers, namespace and project that a command works on.

    Attributes:
        database_url: the ledger's database.
        namespace: the Temporal namespace.
        ui_url: the URL of Temporal's Web UI, if known.
        temporal: the address of the Temporal server of `sched up`; else the environment names it.
        project: the project that `sched up` runs.
    """

    database_url: str
    namespace: str
    ui_url: str | None = None
    temporal: str | None = None
    project: str | None = None

    @property
    def place(self) -> str:
        """Address of the ledger without user, password and options."""
        address = self.database_url.partition("?")[0].rpartition("://")[2]
        return address.rpartition("@")[2]

    def run_link(self, workflow_id: str, run_id: str | None) -> str | None:
        """Return the page of a run in Temporal's Web UI; None if that, or the run, is not known."""
        if self.ui_url is None or run_id is None:
            return None
        return run_link(self.ui_url, self.namespace, workflow_id, run_id)


def note_running(data_dir: Path, target: Target) -> None:
    """Record the running ``sched up``, so that other commands in this folder find its ledger."""
    write_private(data_dir / UP_FILE, asdict(target))  # the database URL includes a password


def write_private(path: Path, document: object) -> None:
    """Write JSON that has a secret into a new file, which only this user may read."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file)


def forget_running(data_dir: Path) -> None:
    """Undo ``note_running``."""
    (data_dir / UP_FILE).unlink(missing_ok=True)


def find_target(data_dir: Path = DEFAULT_DATA_DIR) -> Target | None:
    """Return the target that ``SCHED_DATABASE_URL`` names, else the ``sched up`` that runs here."""
    noted = _noted(data_dir)
    url = environment_url()
    if url is not None:
        here = noted if noted and noted.database_url == url else None
        noted = replace(here or Target(url, ""), namespace=_namespace())
    if noted is None:
        return None
    ui = os.environ.get("SCHED_UI_URL") or noted.ui_url
    return replace(noted, ui_url=ui.rstrip("/") if ui else None)


def _namespace() -> str:
    """Return the namespace of the environment, or else of Temporal's configuration file."""
    named = os.environ.get("TEMPORAL_NAMESPACE")
    if named or not _has_temporal_file():
        return named or "default"
    # Only the Temporal SDK knows its file, and its import takes longer than most commands.
    from engine.runtime.temporal_client import temporal_target

    return str(temporal_target()["namespace"])


def _has_temporal_file() -> bool:
    """Return whether the Temporal SDK may find a configuration file, on any platform."""
    if os.environ.get("TEMPORAL_PROFILE") or os.environ.get("TEMPORAL_CONFIG_FILE"):
        return True
    places = [os.environ.get("XDG_CONFIG_HOME"), os.environ.get("APPDATA")]
    with suppress(RuntimeError):  # there is no home
        places += [str(Path.home() / ".config"), str(Path.home() / "Library/Application Support")]
    return any((Path(each) / "temporalio/temporal.toml").exists() for each in places if each)


def _noted(data_dir: Path) -> Target | None:
    try:
        noted = json.loads((data_dir / UP_FILE).read_text(encoding="utf-8"))
        return Target(**{each.name: noted[each.name] for each in fields(Target)})
    except (OSError, ValueError, KeyError):
        return None


def target(data_dir: Path = DEFAULT_DATA_DIR) -> Target:
    """Return the target of a command.

    Raises:
        LedgerRequired: neither the environment nor ``data_dir`` names a ledger.
    """
    warn_of_unknown_names()
    if (found := find_target(data_dir)) is None:
        begin = "" if DEFAULT_FILE.exists() else "; `sched init` writes a project to begin with"
        raise no_ledger(begin)
    return found


def project_here(of: Target) -> str:
    """Return the default project: SCHED_PROJECT, that of `sched up`, or of the file here."""
    if of.project is not None:
        return default_project(of.project)
    with suppress(ScheduleFileError):
        file = Source(Path(os.environ.get("SCHED_SCHEDULES") or DEFAULT_FILE))
        return default_project(file.look().project())
    return default_project()


def warn_of_unknown_names() -> None:
    """Warn about environment variables that look like settings of the engine but are unknown."""
    for warning in unknown_names():
        print(f"sched: {warning}", file=sys.stderr)


ANSWERS_WITHIN: Final = 2.0
"""Seconds for which a command that only reads waits for each answer of a server."""


@asynccontextmanager
async def open_service(
    of: Target, *, patience: float | None = None, migrates: bool = True
) -> AsyncIterator[ScheduleService]:
    """Open the service on the ledger of this target.

    ``patience``: seconds to wait for each answer; None is those of a worker. ``migrates``: whether
    a schema that is not up to date is brought there.

    Raises:
        LedgerUnavailable: the ledger cannot be reached.
    """
    try:
        async with ScheduleService.connect(
            of.database_url,
            namespace=of.namespace,
            schema=database_schema(),
            actor=actor(),
            data_converter=data_converter,
            patience=patience,
            migrates=migrates,
        ) as opened:
            yield opened
    except LedgerUnavailable as error:
        if environment_url() is not None or isinstance(error, LedgerTimeout):
            raise
        # A `sched up` killed with -9 leaves its file behind; then the connection is refused. If the
        # connection times out instead, the server is still there.
        hint = "the `sched up` of this folder seems not to run; start it"
        if isinstance(error.__cause__, TimeoutError):
            hint = "it is there and does not answer; see what the `sched up` of this folder says"
        raise LedgerUnavailable(error.message, hint=hint) from error


def data_converter() -> DataConverter | None:
    """Return the data converter of the team's setup, whose codec seals inputs; None without one."""
    if not os.environ.get("SCHED_SETUP"):
        return None
    from engine.runtime.setup import Setup  # most commands need no SDK

    return Setup.load().converter


def actor() -> str:
    """Return the user and host that run this command."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # the last one is Windows without USERNAME
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


async def rows_of(
    opened: ScheduleService, key: str | None, asked: Awaitable[Sequence[T]]
) -> Sequence[T]:
    """Return what was asked of a key, or of all if it is None.

    Raises:
        ScheduleNotFound: there is nothing because there is no such schedule.
    """
    rows = await asked
    if key is not None and not rows:
        await opened.schedule(key)
    return rows


# --- signals ---


def on_signal(number: int, act: Callable[[], object]) -> None:
    """Call ``act`` in the running loop when this process gets the signal."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(act))


# --- commands on a ledger ---
# What all commands share that ask a ledger: two options, the service and the output.


class Session:
    """One call of a command: the ledger that it asks, and how it prints the answer.

    Args:
        data_dir: where `sched up` keeps its servers.
        as_json: whether to print JSON.
    """

    patience: float | None = None
    """Seconds to wait for each answer of the ledger; None is those of a worker."""
    migrates = True
    """Whether a ledger that is not up to date is brought there first."""

    def __init__(self, data_dir: DataDir = DEFAULT_DATA_DIR, as_json: Json = False) -> None:
        self.data_dir, self.as_json = data_dir, as_json

    @cached_property
    def target(self) -> Target:
        """Target of the command; see ``target`` for its errors."""
        return target(self.data_dir)

    def ask(self, question: Callable[[ScheduleService], Awaitable[T]]) -> T:
        """Open the service on the target and return its answer to one question.

        Raises:
            LedgerRequired: neither the environment nor ``data_dir`` names a ledger.
            LedgerUnavailable: the ledger cannot be reached.
        """
        return asyncio.run(self.answer(question))

    async def answer(self, question: Callable[[ScheduleService], Awaitable[T]]) -> T:
        """Return the answer to a question, as ``ask`` does, in a running event loop."""
        opening = open_service(self.target, patience=self.patience, migrates=self.migrates)
        async with opening as opened:
            return await question(opened)

    def print(self, document: object, text: str | Iterable[str]) -> None:
        """Print the document with ``--json``, and otherwise the text or its lines."""
        if self.as_json:
            print_json(document)
        else:
            for line in [text] if isinstance(text, str) else text:
                typer.echo(line)

    def print_lines(self, lines: Iterable[str]) -> None:
        """Print these lines at once, unless with ``--json``."""
        if not self.as_json:
            for line in lines:
                typer.echo(line)

    def print_rows(
        self,
        documents: Sequence[object],
        columns: Sequence[str],
        rows: Iterable[Sequence[object]],
        *,
        spare: Sequence[str],
        optional: Sequence[str] = (),
        none: str,
    ) -> None:
        """Print the documents with ``--json``, and otherwise a table with a row for each.

        Without any document the text output is ``none``.
        """
        if self.as_json or not documents:
            self.print(documents, none)
        else:
            print_table(columns, rows, spare=spare, optional=optional)


class Reading(Session):
    """One call of a command that changes nothing: it would rather say who does not answer."""

    patience = ANSWERS_WITHIN


def command(
    commands: typer.Typer, name: str | None = None, *, of: Callable[..., Any] = Session
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that registers a function as a command, by default on a ledger.

    The function gets a `Session`, or what else `of` makes, as its first argument. The command has
    the options of that instead, after its own.
    """
    options = inspect.signature(of, eval_str=True).parameters.values()

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        names = [each.name for each in own if _is_argument(each)]

        @wraps(function)
        def run(**arguments: Any) -> None:
            for each in names:
                _require_text(each, arguments[each])
            shared = {o.name: arguments.pop(o.name) for o in options}
            function(of(**shared), **arguments)

        every = [each.replace(kind=each.KEYWORD_ONLY) for each in (*own, *options)]
        run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined] # typer reads it
        commands.command(name)(run)
        return function

    return register


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(each, ArgumentInfo) for each in get_args(parameter.annotation))


def _require_text(name: str, given: Any) -> None:
    """Refuse an empty argument: of a variable without a value, which names no schedule.

    Raises:
        typer.BadParameter: it is empty, or one of several is.
    """
    if given == "" or (isinstance(given, list | tuple) and "" in given):
        raise typer.BadParameter("it is empty; is a variable not set?", param_hint=name.upper())


# --- service of sched up ---
# The service for the ledger access of ``sched up``, apart from the replica's.


class LazyService:
    """Service opened on first use, so that the ledger may be unavailable at the start."""

    def __init__(
        self, database_url: str, namespace: str, converter: DataConverter | None = None
    ) -> None:
        self._url, self._namespace, self._converter = database_url, namespace, converter
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._service: ScheduleService | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def service(self) -> AsyncIterator[ScheduleService]:
        """Yield the service.

        Raises:
            LedgerUnavailable: the database cannot be reached; the caller may retry.
        """
        async with self._opening:
            if self._service is None:
                connecting = ScheduleService.connect(
                    self._url,
                    namespace=self._namespace,
                    schema=database_schema(),
                    actor="sched up",
                    data_converter=self._converter,
                )
                self._service = await self._stack.enter_async_context(connecting)
        yield self._service
