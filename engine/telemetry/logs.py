"""Log of a process: lines of text or of JSON, with a few lines of its libraries.

``sched worker``, ``sched up`` and ``sched watch`` write it. An application with a worker of its own
configures logging itself, and none of this runs; the records have the same fields there.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    MetricBuffer,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)

from engine.safe_text import escaped, json_text

# --- lines ---

FIELDS: Final = (
    "schedule",
    "window",
    "bucket",
    "windows",
    "workflow_id",
    "run_id",
    "workflow",
    "replica",
    "reason_code",
    "code",
    "timing",
    "lag_ms",
    "duration_ms",
    "server",
    "place",
    "loop",
    "error",
    "error_type",
)
"""The fields of a record, in the order in which JSON has them: docs/logs.md."""

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_OF_A_RUN: Final = ("temporal_activity", "temporal_workflow")
"""Where the SDK's loggers for workflows and steps say which run they are of."""


class TextLines(logging.Formatter):
    """Formatter of lines for people.

    Args:
        plain: whether colours of others are taken out, because no terminal shows them.
    """

    def __init__(self, *, plain: bool) -> None:
        super().__init__(_TEXT)
        self._plain = plain

    def format(self, record: logging.LogRecord) -> str:
        """See the base class."""
        text = escaped(super().format(record), colours=True)
        return _ANSI.sub("", text) if self._plain else text


class JsonLines(logging.Formatter):
    """Formatter of one JSON object a line; docs/logs.md names its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See the base class."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "event": getattr(record, "event", "library" if _library(record) else "message"),
            "logger": record.name,
            "message": _ANSI.sub("", record.getMessage()),
        }
        values = {**_run_of(record), **vars(record)}
        line |= {name: values[name] for name in FIELDS if values.get(name) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json_text(line, default=str)


def _run_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the run that a line of a workflow or step belongs to."""
    known = next((vars(record)[name] for name in _OF_A_RUN if name in vars(record)), None)
    if not isinstance(known, Mapping):
        return {}
    run_id = known.get("workflow_run_id") or known.get("run_id")
    return {
        "workflow_id": known.get("workflow_id"),
        "run_id": run_id,
        "workflow": known.get("workflow_type"),
    }


# --- lines of libraries ---
# The driver of the database logs a traceback at each of its attempts to connect, and Core a line
# for each call that it repeats: hundreds in an outage, which the worker reports in two lines.

_LIBRARIES: Final = (
    "asyncpg",
    "asyncio",
    "httpcore",
    "httpx",
    "opentelemetry",
    "temporalio",
    "uvicorn",
)
_OF_USERS: Final = ("temporalio.activity", "temporalio.workflow")
"""The SDK's loggers for steps and workflows: what they say is of the user."""
_EVERY: Final = 60.0
"""Seconds in which one line of a kind is let through."""
_KINDS: Final = 1000
_CONNECTS: Final = ("asyncpg", "temporalio")
_LOST: Final = re.compile(r"\bUnavailable\b|currently unavailable|DeadlineExceeded|transport error")
"""The words of Core's log for a server that does not answer; its records have no other sign."""
_NUMBERS: Final = re.compile(r"\d+")


def _library(record: logging.LogRecord) -> bool:
    return _is_of(record.name, _LIBRARIES) and not _is_of(record.name, _OF_USERS)


def _is_of(name: str, families: tuple[str, ...]) -> bool:
    # Core's own names go on with a hyphen: temporalio-sdk_core::worker.
    return any(name == each or name.startswith((f"{each}.", f"{each}-")) for each in families)


class LibraryLimit(logging.Filter):
    """Filter that lets through few lines of libraries, and all others.

    Below WARNING they have none: httpx would log addresses with their secrets. That a server is
    away is reported by the worker. Of each kind of line one passes in a minute, and the next says
    how many it stands for. Only asyncio keeps its tracebacks: they may be of any task.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[tuple[str, str], float] = {}
        self._held: dict[tuple[str, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See the base class."""
        try:
            return not _library(record) or self._passes(record)
        except Exception:  # noqa: BLE001 - no handler guards a filter; it reports what has no text
            return True

    def _passes(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or _is_lost_connection(record):
            return False
        core = getattr(record, "temporal_log", None)
        said = str(core.message if core is not None else record.msg)
        kind = (record.name, _NUMBERS.sub("#", said))
        now = time.monotonic()
        passed = self._passed.get(kind)
        if passed is not None and now - passed < _EVERY:
            self._held[kind] = self._held.get(kind, 0) + 1
            return False
        if len(self._passed) >= _KINDS:
            self._passed.clear()
            self._held.clear()
        self._passed[kind] = now
        self._shorten(record, self._held.pop(kind, 0))
        return True

    @staticmethod
    def _shorten(record: logging.LogRecord, more: int) -> None:
        text = record.getMessage()
        if record.exc_info and not _is_of(record.name, ("asyncio",)):
            kind, error, _ = record.exc_info
            text += f": {kind.__name__ if kind else ''}: {error}"
            record.exc_info = record.exc_text = None
        if more:
            text += f" (and {more} more like it)"
        record.msg, record.args = text, ()


def _is_lost_connection(record: logging.LogRecord) -> bool:
    if not _is_of(record.name, _CONNECTS):
        return False
    if hasattr(record, "temporal_log"):
        return bool(_LOST.search(record.getMessage()))
    error = record.exc_info[1] if record.exc_info else None
    return isinstance(error, OSError) or type(error).__module__.startswith("asyncpg")


# --- warnings of runs ---


def logs_events() -> bool:
    """Return whether the log of this process has every event."""
    return logging.getLogger().isEnabledFor(logging.INFO)


class RunWarnings(logging.Handler):
    """Handler that shows what runs warn of: a dropped signal, for example."""

    def __init__(self, show: Callable[[str, str], object]) -> None:
        super().__init__(logging.WARNING)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """See the base class."""
        details = vars(record).get("temporal_workflow")
        text = record.getMessage().removesuffix(f" ({details})")
        if record.exc_info and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]}"
        self._show(f"{_run_of(record).get('workflow_id')}: {text}", _style_of(record))


def _style_of(record: logging.LogRecord) -> str:
    return "red" if record.levelno >= logging.ERROR else "yellow"


def show_run_warnings(show: Callable[[str, str], object]) -> None:
    """Show what runs of this process warn of, unless a log has it.

    Args:
        show: prints a line, in this style.
    """
    if logs_events():
        return
    of_runs = logging.getLogger("temporalio.workflow")
    of_runs.addHandler(RunWarnings(show))
    of_runs.setLevel(logging.WARNING)
    of_runs.propagate = False


_SHOWN: Final = ("sched.api", "sched.waits")
"""Loggers of the API, and of sessions whose locks are waited for."""


class ServiceEvents(logging.Handler):
    """Handler that shows what no listener of a replica knows: of the API, and of locks."""

    def __init__(self, show: Callable[[str, str], object]) -> None:
        super().__init__(logging.INFO)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """See the base class."""
        if getattr(record, "event", None) == "already_cancelled":
            self._show(record.getMessage(), "")
        elif record.name in _SHOWN and record.levelno >= logging.WARNING:
            self._show(record.getMessage(), _style_of(record))


def show_service_events(show: Callable[[str, str], object]) -> None:
    """Show what only the service knows, unless a log has it; a listener shows events of replicas.

    Args:
        show: prints a line, in this style.
    """
    if logs_events():
        return
    of_engine = logging.getLogger("sched")
    of_engine.addHandler(ServiceEvents(show))
    of_engine.setLevel(logging.INFO)
    of_engine.propagate = False


# --- setup ---


def configure_logging(*, as_json: bool = False) -> None:
    """Send every record from INFO on to standard error, in place of what was set before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else TextLines(plain=not sys.stderr.isatty()))
    handler.addFilter(LibraryLimit())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def core_runtime(metrics: MetricBuffer | None = None) -> Runtime:
    """Return a runtime for Temporal clients whose Core logs here, by default for all of them.

    A default that user code has set stays. By itself Core would write to the terminal, in colours.
    """
    shown = f"{TelemetryFilter('WARN', 'ERROR').formatted()},temporalio_client::retry=ERROR"
    forwarding = LogForwardingConfig(
        logging.getLogger("temporalio"), prepend_target_on_message=False
    )
    telemetry = TelemetryConfig(
        logging=LoggingConfig(shown, forwarding=forwarding),
        metrics=metrics,
        attach_service_name=False,
    )
    runtime = Runtime(telemetry=telemetry)
    with suppress(RuntimeError):
        Runtime.set_default(runtime)
    return runtime
