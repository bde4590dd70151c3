"""Exceptions of sched-engine, in one tree, all error codes, and the question "did you mean".

::

    EngineError
    ├── ScheduleError                  one value of a declaration is wrong
    │   ├── CronInvalid
    │   ├── TimezoneInvalid
    │   ├── IntervalTooShort
    │   ├── TopicInvalid
    │   ├── RetryPolicyInvalid         of a schedule, a workflow or a step
    │   ├── ParentUnknown
    │   ├── ParentCycle
    │   ├── ParentTimesDiffer
    │   ├── MomentInPast
    │   └── MomentInFuture
    ├── SettingsInvalid                a setting is permanently invalid; .problems lists all
    ├── SetupInvalid                   the function of SCHED_SETUP gives no options
    ├── ExtraMissing                   a package of an extra is not installed
    ├── ScheduleFileError              a file cannot be used; .problems lists every reason
    ├── KeyForeign                     another project owns the key
    ├── KeyInUse                       a schedule with this key exists or existed
    ├── OwnedByFile                    a file declares the schedule, so only the file can change it
    ├── RevisionTooLow                 a newer file has already been applied
    ├── PruneRefused                   too much would be retired at once
    ├── ScheduleNotFound
    ├── ScheduleRetired
    ├── ScheduleRenamed                the key is a former one of the schedule
    ├── WorkflowUnknown                no worker has announced the workflow
    ├── ImportUnreadable               a source of `sched import` cannot be read
    ├── WorkflowInvalid                Temporal's sandbox cannot load it; .problems lists each
    ├── InputInvalid                   the workflow cannot take the input
    ├── CursorInvalid                  no page of this list gave this cursor
    ├── RequestInvalid                 the request id is malformed
    ├── RequestInUse                   the request id was already used for another schedule
    ├── StartInvalid                   the workflow or the id of a start is malformed
    ├── StartInUse                     the id already started the workflow with another input
    ├── RunEnded                       the run takes no signal, update or query any more
    ├── EnqueueFailure                 a run has not begun in time, or never can; .workflow_id
    ├── WindowNotFound                 the schedule has no such window
    ├── WindowDecided                  the window already has a decision
    ├── FireStillOpen                  the run is open or may still start
    ├── LetterNotFound                 no dead letter that allows the operation
    ├── BackfillOverlaps               another backfill is still laying some of the windows
    ├── NotCancellable                 nothing is left to cancel
    ├── VersionOutdated                the schedule was edited since the caller read it
    ├── TakeoverRefused                windows would be lost or run twice
    ├── TakeoverUncertain              it is not known whether the other scheduler ends in time
    ├── TokenInvalid                   a token of the API cannot be made so
    ├── TokenNameInUse                 a token in force has the name
    ├── TokenNotFound                  no token in force has the name
    ├── HookNotFound                   no webhook has the name
    ├── RequestRefused                 the API refuses a request, whatever it asks for
    │   ├── RequestMalformed           its body, parameters or headers are not valid
    │   ├── TokenRequired              it carries no token that is in force
    │   ├── AccessDenied               its token is not for this
    │   ├── OriginForeign              it comes from a page or under a name that is not ours
    │   ├── RouteUnknown               there is nothing under its path, or not for its method
    │   ├── BodyTooLarge
    │   ├── MediaTypeWrong             its body is not of a type that the route takes
    │   ├── VersionMissing             an edit does not name the version that it changes
    │   ├── KeyReused                  its Idempotency-Key stands for another request
    │   ├── RequestUnfinished          the same request is in work, or its end is not known
    │   └── RateExceeded               too many of its kind; .retry_after says when to repeat
    ├── LedgerError
    │   ├── LedgerUnavailable
    │   │   ├── CommitUnknown          the commit was not confirmed
    │   │   └── LedgerTimeout          the database ended an operation that took too long
    │   ├── LedgerTooNew
    │   ├── DefinitionUnreadable
    │   ├── InputsSealed               an input is sealed, and the codec is not here
    │   └── LedgerRequired             SCHED_DATABASE_URL is not set
    ├── BoundElsewhere                 the ledger belongs to another Temporal namespace
    ├── RetentionTooShort              the namespace's retention is shorter than four leases
    ├── ArchiveFailed                  old rows may not be in the archive
    ├── TemporalUnavailable
    ├── ResourceMissing                a step needs a resource that its worker does not have
    ├── ResourceFailed                 a resource of the user's steps cannot be opened
    └── EmbeddedError                  a server of ``sched up`` cannot run here

Each class has a stable ``code``; the first line of its docstring is its default message. ``Code``
also holds the codes that appear only in a ``Problem`` or an ``Alert``.
Normal outcomes (already started, lost the claim, nothing due) are values, never errors.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from importlib.util import find_spec
from typing import Final

# --- codes ---


class Code(StrEnum):
    """Error codes, stable across versions; docs/codes.md lists them all.

    Applications catch exceptions by their codes, and a command prints the code when it exits with
    2. A ``Problem`` carries the codes of a file, an ``Alert`` those of a worker; some of both are
    codes of exceptions too.
    """

    ENGINE_ERROR = "SCHEDULE_ENGINE_ERROR"
    COMMAND_INVALID = "SCHEDULE_COMMAND_INVALID"
    SETTING_INVALID = "SCHEDULE_SETTING_INVALID"
    SETUP_INVALID = "SCHEDULE_SETUP_INVALID"
    EXTRA_MISSING = "SCHEDULE_EXTRA_MISSING"
    EMBEDDED_ERROR = "SCHEDULE_EMBEDDED_ERROR"
    TEMPORAL_UNAVAILABLE = "SCHEDULE_TEMPORAL_UNAVAILABLE"
    BOUND_ELSEWHERE = "SCHEDULE_BOUND_ELSEWHERE"
    RETENTION_TOO_SHORT = "SCHEDULE_RETENTION_TOO_SHORT"
    LEDGER_ERROR = "SCHEDULE_LEDGER_ERROR"
    LEDGER_UNAVAILABLE = "SCHEDULE_LEDGER_UNAVAILABLE"
    LEDGER_TIMEOUT = "SCHEDULE_LEDGER_TIMEOUT"
    COMMIT_UNKNOWN = "SCHEDULE_COMMIT_UNKNOWN"
    LEDGER_TOO_NEW = "SCHEDULE_LEDGER_TOO_NEW"
    LEDGER_REQUIRED = "SCHEDULE_LEDGER_REQUIRED"
    DEFINITION_UNREADABLE = "SCHEDULE_DEFINITION_UNREADABLE"
    INPUTS_SEALED = "SCHEDULE_INPUTS_SEALED"

    # A file cannot be read.
    FILE_INVALID = "SCHEDULE_FILE_INVALID"
    FILE_UNREADABLE = "SCHEDULE_FILE_UNREADABLE"
    FILE_EMPTY = "SCHEDULE_FILE_EMPTY"
    FILE_TOO_LARGE = "SCHEDULE_FILE_TOO_LARGE"
    YAML_INVALID = "SCHEDULE_YAML_INVALID"

    # A declaration is wrong.
    FIELD_MISSING = "SCHEDULE_FIELD_MISSING"
    FIELD_UNKNOWN = "SCHEDULE_FIELD_UNKNOWN"
    FIELD_INVALID = "SCHEDULE_FIELD_INVALID"
    KEY_INVALID = "SCHEDULE_KEY_INVALID"
    KEY_DUPLICATE = "SCHEDULE_KEY_DUPLICATE"
    KIND_INVALID = "SCHEDULE_KIND_INVALID"
    CRON_INVALID = "SCHEDULE_CRON_INVALID"
    CRON_DOUBTFUL = "SCHEDULE_CRON_DOUBTFUL"
    TIMEZONE_INVALID = "SCHEDULE_TIMEZONE_INVALID"
    INTERVAL_TOO_SHORT = "SCHEDULE_INTERVAL_TOO_SHORT"
    TOPIC_INVALID = "SCHEDULE_TOPIC_INVALID"
    RETRY_POLICY_INVALID = "SCHEDULE_RETRY_POLICY_INVALID"
    EXPECTATION_FAILED = "SCHEDULE_EXPECTATION_FAILED"
    PARENT_UNKNOWN = "SCHEDULE_PARENT_UNKNOWN"
    PARENT_CYCLE = "SCHEDULE_PARENT_CYCLE"
    PARENT_TIMES_DIFFER = "SCHEDULE_PARENT_TIMES_DIFFER"
    WORKFLOW_UNKNOWN = "SCHEDULE_WORKFLOW_UNKNOWN"
    WORKFLOW_INVALID = "SCHEDULE_WORKFLOW_INVALID"
    INPUT_INVALID = "SCHEDULE_INPUT_INVALID"
    SEARCH_ATTRIBUTE_INVALID = "SCHEDULE_SEARCH_ATTRIBUTE_INVALID"

    # Schedules of another scheduler cannot be imported.
    IMPORT_UNREADABLE = "SCHEDULE_IMPORT_UNREADABLE"
    IMPORT_NOT_EXPRESSED = "SCHEDULE_IMPORT_NOT_EXPRESSED"

    # A valid file cannot be applied.
    KEY_FOREIGN = "SCHEDULE_KEY_FOREIGN"
    REVISION_TOO_LOW = "SCHEDULE_REVISION_TOO_LOW"
    PRUNE_REFUSED = "SCHEDULE_PRUNE_REFUSED"

    # A request cannot be fulfilled.
    JOB_NOT_FOUND = "SCHEDULE_JOB_NOT_FOUND"
    RETIRED = "SCHEDULE_RETIRED"
    RENAMED = "SCHEDULE_RENAMED"
    OWNED_BY_FILE = "SCHEDULE_OWNED_BY_FILE"
    KEY_IN_USE = "SCHEDULE_KEY_IN_USE"
    CURSOR_INVALID = "SCHEDULE_CURSOR_INVALID"
    REQUEST_ID_INVALID = "SCHEDULE_REQUEST_ID_INVALID"
    CLIENT_REQUEST_ID_IN_USE = "SCHEDULE_CLIENT_REQUEST_ID_IN_USE"
    START_INVALID = "SCHEDULE_START_INVALID"
    START_ID_IN_USE = "SCHEDULE_START_ID_IN_USE"
    RUN_ENDED = "SCHEDULE_RUN_ENDED"
    ENQUEUE_FAILURE = "SCHEDULE_ENQUEUE_FAILURE"
    MOMENT_IN_PAST = "SCHEDULE_MOMENT_IN_PAST"
    MOMENT_IN_FUTURE = "SCHEDULE_MOMENT_IN_FUTURE"
    WINDOW_NOT_FOUND = "SCHEDULE_WINDOW_NOT_FOUND"
    WINDOW_DECIDED = "SCHEDULE_WINDOW_DECIDED"
    TAKEOVER_REFUSED = "SCHEDULE_TAKEOVER_REFUSED"
    TAKEOVER_UNCERTAIN = "SCHEDULE_TAKEOVER_UNCERTAIN"
    FIRE_OPEN = "SCHEDULE_FIRE_OPEN"
    JOB_NOT_CANCELLABLE = "SCHEDULE_JOB_NOT_CANCELLABLE"
    JOB_ALREADY_CANCELLED = "SCHEDULE_JOB_ALREADY_CANCELLED"
    BACKFILL_OVERLAPS = "SCHEDULE_BACKFILL_OVERLAPS"
    LETTER_NOT_FOUND = "SCHEDULE_LETTER_NOT_FOUND"
    VERSION_OUTDATED = "SCHEDULE_VERSION_OUTDATED"
    TOKEN_INVALID = "SCHEDULE_TOKEN_INVALID"
    TOKEN_NAME_IN_USE = "SCHEDULE_TOKEN_NAME_IN_USE"
    TOKEN_NOT_FOUND = "SCHEDULE_TOKEN_NOT_FOUND"
    HOOK_NOT_FOUND = "SCHEDULE_HOOK_NOT_FOUND"

    # The API refuses a request.
    REQUEST_REFUSED = "SCHEDULE_REQUEST_REFUSED"
    REQUEST_MALFORMED = "SCHEDULE_REQUEST_MALFORMED"
    TOKEN_REQUIRED = "SCHEDULE_TOKEN_REQUIRED"
    ACCESS_DENIED = "SCHEDULE_ACCESS_DENIED"
    ORIGIN_FOREIGN = "SCHEDULE_ORIGIN_FOREIGN"
    ROUTE_UNKNOWN = "SCHEDULE_ROUTE_UNKNOWN"
    BODY_TOO_LARGE = "SCHEDULE_BODY_TOO_LARGE"
    MEDIA_TYPE_WRONG = "SCHEDULE_MEDIA_TYPE_WRONG"
    VERSION_MISSING = "SCHEDULE_VERSION_MISSING"
    IDEMPOTENCY_KEY_REUSED = "SCHEDULE_IDEMPOTENCY_KEY_REUSED"
    REQUEST_UNFINISHED = "SCHEDULE_REQUEST_UNFINISHED"
    RATE_EXCEEDED = "SCHEDULE_RATE_EXCEEDED"

    # A run cannot continue.
    RESET_UNSAFE = "SCHEDULE_RESET_UNSAFE"
    RESULT_INVALID = "SCHEDULE_RESULT_INVALID"

    # A worker cannot start.
    RESOURCE_MISSING = "SCHEDULE_RESOURCE_MISSING"
    RESOURCE_FAILED = "SCHEDULE_RESOURCE_FAILED"

    # A running worker emits an alert.
    PLAN_FAILED = "SCHEDULE_PLAN_FAILED"
    LOOK_FAILED = "SCHEDULE_LOOK_FAILED"
    UNREADABLE_HERE = "SCHEDULE_UNREADABLE_HERE"
    FIRE_REJECTED = "SCHEDULE_FIRE_REJECTED"
    FIRE_UNVOUCHED = "SCHEDULE_FIRE_UNVOUCHED"
    SETTLE_FAILED = "SCHEDULE_SETTLE_FAILED"
    STOP_FAILED = "SCHEDULE_STOP_FAILED"
    HANDLER_UNKNOWN = "SCHEDULE_HANDLER_UNKNOWN"
    OVERLOADED = "SCHEDULE_OVERLOADED"
    QUEUE_FULL = "SCHEDULE_QUEUE_FULL"
    QUEUE_UNKNOWN = "SCHEDULE_QUEUE_UNKNOWN"
    DATA_GAP = "SCHEDULE_DATA_GAP"
    TASK_QUEUE_UNPOLLED = "SCHEDULE_TASK_QUEUE_UNPOLLED"
    TASK_QUEUE_MIXED = "SCHEDULE_TASK_QUEUE_MIXED"
    RUN_LOST = "SCHEDULE_RUN_LOST"
    RUN_FOUND = "SCHEDULE_RUN_FOUND"
    RUN_DOUBLED = "SCHEDULE_RUN_DOUBLED"
    RUN_STUCK = "SCHEDULE_RUN_STUCK"
    STEP_UNSERVED = "SCHEDULE_STEP_UNSERVED"
    LOOP_BLOCKED = "SCHEDULE_LOOP_BLOCKED"
    STEP_FAILING = "SCHEDULE_STEP_FAILING"
    BACKFILL_HELD = "SCHEDULE_BACKFILL_HELD"
    BACKFILL_ENDED = "SCHEDULE_BACKFILL_ENDED"
    NEXT_FIRE_REPAIRED = "SCHEDULE_NEXT_FIRE_REPAIRED"
    OLD_SNAPSHOT = "SCHEDULE_OLD_SNAPSHOT"
    ARCHIVE_FAILED = "SCHEDULE_ARCHIVE_FAILED"
    TZDATA_DIFFERS = "SCHEDULE_TZDATA_DIFFERS"
    CLOCK_SKEW = "SCHEDULE_CLOCK_SKEW"

    # Looks find these problems, which last until a look does not; `sched watch` alerts too.
    NOT_FIRED = "SCHEDULE_NOT_FIRED"
    FIRED_LATE = "SCHEDULE_FIRED_LATE"
    FAILURES_IN_ROW = "SCHEDULE_FAILURES_IN_ROW"
    PAUSED_AFTER_FAILURES = "SCHEDULE_PAUSED_AFTER_FAILURES"
    SKIPPED_IN_ROW = "SCHEDULE_SKIPPED_IN_ROW"
    DEAD_LETTERS = "SCHEDULE_DEAD_LETTERS"
    REPLICA_VANISHED = "SCHEDULE_REPLICA_VANISHED"
    COMMITS_LOST = "SCHEDULE_COMMITS_LOST"


# --- exceptions ---


class EngineError(Exception):
    """Something in sched-engine went wrong."""

    code: Code = Code.ENGINE_ERROR

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        self.message = message or self.title
        self.hint = hint
        super().__init__(f"{self.message}; {hint}" if hint else self.message)

    @property
    def title(self) -> str:
        """The kind of the error in words, without anything of this one."""
        return (type(self).__doc__ or "").partition("\n")[0].rstrip(".")

    def to_json(self) -> dict[str, object]:
        """Return code, message, hint and the problems it lists: sentences, or those of a file."""
        found = getattr(self, "problems", ())
        problems = [each if isinstance(each, str) else asdict(each) for each in found]
        return error_json(self.code, self.message, hint=self.hint, problems=problems)


def error_json(
    code: Code, message: str, *, hint: str | None = None, problems: Sequence[object] = ()
) -> dict[str, object]:
    """Return an error as commands with ``--json`` print it."""
    return {"code": code, "message": message, "hint": hint, "problems": [*problems]}


class ScheduleError(EngineError):
    """A value of this schedule is not valid.

    ``code``: that of a fault without a class of its own.
    """

    code = Code.FIELD_INVALID

    def __init__(
        self, message: str | None = None, *, hint: str | None = None, code: Code | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code or self.code


class CronInvalid(ScheduleError):
    """The cron expression is not valid."""

    code = Code.CRON_INVALID


class TimezoneInvalid(ScheduleError):
    """The timezone is not an IANA name."""

    code = Code.TIMEZONE_INVALID


class IntervalTooShort(ScheduleError):
    """An interval is at least 1000 milliseconds."""

    code = Code.INTERVAL_TOO_SHORT


class TopicInvalid(ScheduleError):
    """A topic is one to three lowercase segments."""

    code = Code.TOPIC_INVALID


class RetryPolicyInvalid(ScheduleError, ValueError, TypeError):
    """A value of a retry policy is out of its bounds.

    As the arguments of ``Retry(…)`` are Python's own, it is a ValueError and a TypeError too.
    """

    code = Code.RETRY_POLICY_INVALID


class ParentUnknown(ScheduleError):
    """No schedule of the project has the key of the parent."""

    code = Code.PARENT_UNKNOWN


class ParentCycle(ScheduleError):
    """The schedule waits for itself."""

    code = Code.PARENT_CYCLE


class ParentTimesDiffer(ScheduleError):
    """The schedule and its parent have no windows of the same fire times."""

    code = Code.PARENT_TIMES_DIFFER


class MomentInPast(ScheduleError):
    """The moment has already passed."""

    code = Code.MOMENT_IN_PAST


class MomentInFuture(ScheduleError):
    """The moment is still to come."""

    code = Code.MOMENT_IN_FUTURE


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem in a schedule file.

    ``line`` and ``column`` count from 1 and are 0 when the problem concerns the whole file.
    ``key`` is the schedule's key if it could be read; ``value`` is shortened for display.
    ``file`` is set when several files are read together.
    """

    code: Code
    message: str
    hint: str = ""
    line: int = 0
    column: int = 0
    key: str | None = None
    value: str | None = None
    file: str | None = None

    def located(self, name: str) -> str:
        """Return ``name:line:column: CODE: message; hint``.

        ``name`` is the file name to use if the problem has no ``file``.
        """
        name = self.file or name
        place = f"{name}:{self.line}:{self.column}" if self.line else name
        hint = f"; {self.hint}" if self.hint else ""
        return f"{place}: {self.code}: {self.message}{hint}"


@dataclass
class ScheduleFileError(EngineError):
    """The schedule file cannot be used.

    ``digest`` and ``calendars`` are those of what was read, as a ``ScheduleFile`` has them; an
    empty digest: it could not be read at all.
    """

    name: str
    problems: tuple[Problem, ...] = field(default=())
    digest: str = ""
    calendars: tuple[tuple[str, str], ...] = ()

    code = Code.FILE_INVALID

    def __post_init__(self) -> None:
        super().__init__("\n".join(problem.located(self.name) for problem in self.problems))


class SettingsInvalid(EngineError):
    """A setting of this process is not valid.

    Args:
        problems: a sentence for each, with its name, its value and the hint.
    """

    code = Code.SETTING_INVALID

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class SetupInvalid(EngineError):
    """The setup of this process is not valid."""

    code = Code.SETUP_INVALID


class ExtraMissing(EngineError):
    """A package of an extra is not installed."""

    code = Code.EXTRA_MISSING


_EXTRAS: Final = {
    "api": ("fastapi", "jinja2", "limits", "sse_starlette", "uvicorn"),
    "calendars": ("icalendar", "recurring_ical_events"),
    "webhooks": ("cloudevents", "httpx", "standardwebhooks"),
}
"""What each extra of this package brings, by the names of modules."""


def extra_missing(extra: str, purpose: str) -> ExtraMissing | None:
    """Return the refusal of a purpose whose extra is not installed; None if it is."""
    missing = next((name for name in _EXTRAS[extra] if find_spec(name) is None), None)
    if missing is None:
        return None
    return ExtraMissing(
        f"{purpose} needs {missing}, which is not installed",
        hint=f"pip install 'sched-engine[{extra}]'",
    )


class KeyForeign(EngineError):
    """The key belongs to another project."""

    code = Code.KEY_FOREIGN


class KeyInUse(EngineError):
    """There is, or was, a schedule of this key."""

    code = Code.KEY_IN_USE


class OwnedByFile(EngineError):
    """A schedule file declares this schedule."""

    code = Code.OWNED_BY_FILE


class RevisionTooLow(EngineError):
    """A file with a higher revision has already been applied."""

    code = Code.REVISION_TOO_LOW


class PruneRefused(EngineError):
    """More than half of the project's schedules would be retired at once."""

    code = Code.PRUNE_REFUSED


class ScheduleNotFound(EngineError):
    """There is no schedule of this key."""

    code = Code.JOB_NOT_FOUND

    def __init__(self, key: str, *, hint: str | None = None) -> None:
        self.key = key
        super().__init__(f"there is no schedule {key}", hint=hint)


class ScheduleRetired(EngineError):
    """The schedule was retired."""

    code = Code.RETIRED


class ScheduleRenamed(EngineError):
    """The schedule has another key now."""

    code = Code.RENAMED


class WorkflowUnknown(EngineError):
    """No worker ever announced the workflow."""

    code = Code.WORKFLOW_UNKNOWN


class ImportUnreadable(EngineError):
    """The source of an import cannot be read."""

    code = Code.IMPORT_UNREADABLE


class WorkflowInvalid(EngineError):
    """A workflow cannot be loaded in Temporal's sandbox.

    Args:
        problems: one for each place in the code, with its file and line.
    """

    code = Code.WORKFLOW_INVALID

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(each.located("") for each in problems))


class InputInvalid(EngineError):
    """The workflow cannot take the input."""

    code = Code.INPUT_INVALID


class CursorInvalid(EngineError):
    """The cursor does not belong to this list."""

    code = Code.CURSOR_INVALID


class RequestInvalid(EngineError):
    """The request id is not valid."""

    code = Code.REQUEST_ID_INVALID


class RequestInUse(EngineError):
    """The clientRequestId was used before."""

    code = Code.CLIENT_REQUEST_ID_IN_USE


class StartInvalid(EngineError):
    """The start is not valid."""

    code = Code.START_INVALID


class StartInUse(EngineError):
    """The id started this workflow before, with another input."""

    code = Code.START_ID_IN_USE


class RunEnded(EngineError):
    """The run has ended, and takes no signal, update or query any more."""

    code = Code.RUN_ENDED


class EnqueueFailure(EngineError):
    """The run is in the ledger, but it has not begun.

    Args:
        message: what is known of it.
        workflow_id: the id of its row.
        refused: whether it can never begin; otherwise it begins later.
        reason_code: why it was refused, as in its row.
        hint: what the caller can do.
    """

    code = Code.ENQUEUE_FAILURE

    def __init__(
        self,
        message: str,
        *,
        workflow_id: str,
        refused: bool,
        reason_code: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.workflow_id, self.refused, self.reason_code = workflow_id, refused, reason_code
        super().__init__(message, hint=hint)


class WindowNotFound(EngineError):
    """The schedule has no such window."""

    code = Code.WINDOW_NOT_FOUND


class WindowDecided(EngineError):
    """The window was decided already."""

    code = Code.WINDOW_DECIDED


class FireStillOpen(EngineError):
    """The run is open, or may still come."""

    code = Code.FIRE_OPEN


class LetterNotFound(EngineError):
    """There is no such dead letter."""

    code = Code.LETTER_NOT_FOUND


class BackfillOverlaps(EngineError):
    """A backfill of some of these windows is being laid."""

    code = Code.BACKFILL_OVERLAPS


class NotCancellable(EngineError):
    """There is nothing to cancel any more."""

    code = Code.JOB_NOT_CANCELLABLE


class VersionOutdated(EngineError):
    """The schedule was edited meanwhile."""

    code = Code.VERSION_OUTDATED


class TakeoverRefused(EngineError):
    """The schedule cannot be taken over so: windows would be lost, or run twice."""

    code = Code.TAKEOVER_REFUSED


class TakeoverUncertain(EngineError):
    """The end of the other schedule is not confirmed."""

    code = Code.TAKEOVER_UNCERTAIN


class TokenInvalid(EngineError):
    """The token cannot be made so."""

    code = Code.TOKEN_INVALID


class TokenNameInUse(EngineError):
    """A token in force has this name."""

    code = Code.TOKEN_NAME_IN_USE


class TokenNotFound(EngineError):
    """No token in force has this name."""

    code = Code.TOKEN_NOT_FOUND


class HookNotFound(EngineError):
    """No webhook has this name."""

    code = Code.HOOK_NOT_FOUND


class RequestRefused(EngineError):
    """The API refuses the request."""

    code = Code.REQUEST_REFUSED


class RequestMalformed(RequestRefused):
    """The request is not valid."""

    code = Code.REQUEST_MALFORMED


class TokenRequired(RequestRefused):
    """The request needs a token that is in force."""

    code = Code.TOKEN_REQUIRED


class AccessDenied(RequestRefused):
    """The token is not for this."""

    code = Code.ACCESS_DENIED


class OriginForeign(RequestRefused):
    """The request comes from a page, or under a name, that is not ours."""

    code = Code.ORIGIN_FOREIGN


class RouteUnknown(RequestRefused):
    """There is nothing under this path."""

    code = Code.ROUTE_UNKNOWN


class BodyTooLarge(RequestRefused):
    """The body is too large."""

    code = Code.BODY_TOO_LARGE


class MediaTypeWrong(RequestRefused):
    """The body is not of a type that this route takes."""

    code = Code.MEDIA_TYPE_WRONG


class VersionMissing(RequestRefused):
    """The edit does not name the version that it changes."""

    code = Code.VERSION_MISSING


class KeyReused(RequestRefused):
    """The Idempotency-Key stands for another request."""

    code = Code.IDEMPOTENCY_KEY_REUSED


class RequestUnfinished(RequestRefused):
    """The same request is in work, or its end is not known."""

    code = Code.REQUEST_UNFINISHED


class RateExceeded(RequestRefused):
    """There are too many requests of this kind.

    Args:
        message: which limit.
        retry_after: seconds after which one more is accepted.
        hint: what the caller can do.
    """

    code = Code.RATE_EXCEEDED

    def __init__(self, message: str, *, retry_after: int, hint: str | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message, hint=hint)


class LedgerError(EngineError):
    """The ledger could not be used."""

    code = Code.LEDGER_ERROR


class LedgerUnavailable(LedgerError):
    """The ledger's database cannot be reached.

    ``detail`` is what the driver said, without our own sentence; None if it said nothing.
    """

    code = Code.LEDGER_UNAVAILABLE
    detail: str | None = None


class CommitUnknown(LedgerUnavailable):
    """The connection was lost while a transaction committed: it may have, or not."""

    code = Code.COMMIT_UNKNOWN


class LedgerTimeout(LedgerUnavailable):
    """The ledger's database ended what took too long."""

    code = Code.LEDGER_TIMEOUT


class LedgerTooNew(LedgerError):
    """The ledger was written by a newer sched-engine."""

    code = Code.LEDGER_TOO_NEW


class DefinitionUnreadable(LedgerError):
    """A definition in the ledger cannot be read by this version."""

    code = Code.DEFINITION_UNREADABLE


class InputsSealed(LedgerError):
    """Inputs are sealed, and this process has no codec that can read and write them."""

    code = Code.INPUTS_SEALED


class LedgerRequired(LedgerError):
    """This needs a ledger: set SCHED_DATABASE_URL."""

    code = Code.LEDGER_REQUIRED


class BoundElsewhere(EngineError):
    """The ledger belongs to another Temporal namespace."""

    code = Code.BOUND_ELSEWHERE


class RetentionTooShort(EngineError):
    """The namespace's retention is shorter than four leases."""

    code = Code.RETENTION_TOO_SHORT


class ArchiveFailed(EngineError):
    """Old rows could not be archived."""

    code = Code.ARCHIVE_FAILED


class TemporalUnavailable(EngineError):
    """The Temporal server cannot be reached."""

    code = Code.TEMPORAL_UNAVAILABLE


class EmbeddedError(EngineError):
    """An embedded server cannot run here."""

    code = Code.EMBEDDED_ERROR


class ResourceMissing(EngineError):
    """A step needs a resource that its worker does not have."""

    code = Code.RESOURCE_MISSING


class ResourceFailed(EngineError):
    """A resource ended while the worker ran."""

    code = Code.RESOURCE_FAILED


# --- misspelt names ---
# Hints that propose the name which was probably meant.

_COMPARED: Final = 100
"""Characters of a name that are compared: the time grows with the square of the length."""


def nearest(
    name: str, known: Iterable[str], *, most: int = 1, cutoff: float = 0.6
) -> tuple[str, ...]:
    """Return at most ``most`` known names that resemble ``name``, the most similar first.

    Case does not count.

    Args:
        name: as it was written.
        known: the correct names.
        most: how many.
        cutoff: the least similarity, from 0 to 1.
    """
    by_lower = defaultdict[str, list[str]](list)
    for each in sorted(known):
        by_lower[each.lower()[:_COMPARED]].append(each)
    close = get_close_matches(name.lower()[:_COMPARED], by_lower, n=most, cutoff=cutoff)
    return tuple(each for low in close for each in by_lower[low])[:most]


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the question for the most similar known name; ``otherwise`` if none resembles it."""
    return question(*nearest(name, known), otherwise=otherwise)


def question(*names: str | None, otherwise: str = "") -> str:
    """Return the question whether one of ``names`` was meant; ``otherwise`` without any."""
    proposed = " or ".join(filter(None, names))
    return f"did you mean {proposed}?" if proposed else otherwise
