"""Every error of sched-engine, in one tree.

::

    EngineError
    ├── ScheduleError                  one value of a declaration is wrong
    │   ├── CronInvalid
    │   ├── TimezoneInvalid
    │   ├── IntervalTooShort
    │   ├── MomentInPast
    │   └── MomentInFuture
    ├── SettingsInvalid                a setting can never become right; .problems lists all
    ├── ScheduleFileError              a file cannot be used; .problems lists every reason
    ├── KeyForeign                     another project owns the key
    ├── KeyInUse                       there is, or was, a schedule of this key
    ├── OwnedByFile                    a file declares the schedule, so only the file changes it
    ├── RevisionTooLow                 a newer file has already been applied
    ├── PruneRefused                   too much would be retired at once
    ├── ScheduleNotFound
    ├── ScheduleRetired
    ├── WorkflowUnknown                no worker ever announced the workflow
    ├── RequestInvalid                 a request id that is none
    ├── RequestInUse                   another schedule was asked for under this request id
    ├── WindowNotFound                 the schedule has no such window
    ├── WindowDecided                  too late to decide otherwise
    ├── FireStillOpen                  its run is open, or may still come
    ├── LetterNotFound                 no dead letter that could be dealt with so
    ├── BackfillOverlaps               another backfill still lays some of the windows
    ├── NotCancellable                 nothing is left to cancel
    ├── LedgerError
    │   ├── LedgerUnavailable
    │   │   ├── CommitUnknown          a commit that nobody confirmed
    │   │   └── LedgerTimeout          the database ended what took too long
    │   ├── LedgerTooNew
    │   ├── DefinitionUnreadable
    │   └── LedgerRequired             stateless mode cannot do that
    ├── RetentionTooShort              the namespace forgets runs faster than a lease lasts
    ├── ArchiveFailed                  it is not certain that old rows are in the archive
    ├── TemporalUnavailable
    └── EmbeddedError                  a server of ``sched up`` cannot run here

Each class has a stable ``code``; the first line of its docstring is its default message.
Normal outcomes (already started, lost the claim, nothing due) are values, never errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar


class EngineError(Exception):
    """Something in sched-engine went wrong."""

    code: ClassVar[str] = "SCHEDULE_ENGINE_ERROR"

    def __init__(self, message: str | None = None, *, cure: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").partition("\n")[0].rstrip(".")
        self.cure = cure
        super().__init__(f"{self.message}; {cure}" if cure else self.message)


class ScheduleError(EngineError):
    """A value of this schedule is not valid."""

    code = "SCHEDULE_FIELD_INVALID"


class CronInvalid(ScheduleError):
    """The cron expression is not valid."""

    code = "SCHEDULE_CRON_INVALID"


class TimezoneInvalid(ScheduleError):
    """The timezone is not an IANA name."""

    code = "SCHEDULE_TIMEZONE_INVALID"


class IntervalTooShort(ScheduleError):
    """An interval is at least 1000 milliseconds."""

    code = "SCHEDULE_INTERVAL_TOO_SHORT"


class MomentInPast(ScheduleError):
    """The moment has already passed."""

    code = "SCHEDULE_MOMENT_IN_PAST"


class MomentInFuture(ScheduleError):
    """The moment is still to come."""

    code = "SCHEDULE_MOMENT_IN_FUTURE"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a file.

    ``line`` and ``column`` count from 1 and are 0 when the whole file is meant.
    ``key`` is the schedule's key where one could be read; ``value`` is shortened for display.
    ``file`` is given where several files are read together.
    """

    code: str
    message: str
    cure: str = ""
    line: int = 0
    column: int = 0
    key: str | None = None
    value: str | None = None
    file: str | None = None

    def located(self, name: str) -> str:
        """Return ``name:line:column: CODE: what is wrong; what to write instead``.

        ``name`` is that of the file, where the problem does not know better.
        """
        name = self.file or name
        place = f"{name}:{self.line}:{self.column}" if self.line else name
        cure = f"; {self.cure}" if self.cure else ""
        return f"{place}: {self.code}: {self.message}{cure}"


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

    code = "SCHEDULE_FILE_INVALID"

    def __post_init__(self) -> None:
        super().__init__("\n".join(problem.located(self.name) for problem in self.problems))


class SettingsInvalid(EngineError):
    """A setting of this process is not valid.

    Args:
        problems: a sentence for each, with its name, its value and the cure.
    """

    code = "SCHEDULE_SETTING_INVALID"

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class KeyForeign(EngineError):
    """The key belongs to another project."""

    code = "SCHEDULE_KEY_FOREIGN"


class KeyInUse(EngineError):
    """There is, or was, a schedule of this key."""

    code = "SCHEDULE_KEY_IN_USE"


class OwnedByFile(EngineError):
    """A schedule file declares this schedule."""

    code = "SCHEDULE_OWNED_BY_FILE"


class RevisionTooLow(EngineError):
    """A file with a higher revision has already been applied."""

    code = "SCHEDULE_REVISION_TOO_LOW"


class PruneRefused(EngineError):
    """More than half of the project's schedules would be retired at once."""

    code = "SCHEDULE_PRUNE_REFUSED"


class ScheduleNotFound(EngineError):
    """There is no schedule of this key."""

    code = "SCHEDULE_JOB_NOT_FOUND"

    def __init__(self, key: str, *, cure: str | None = None) -> None:
        self.key = key
        super().__init__(f"there is no schedule {key}", cure=cure)


class ScheduleRetired(EngineError):
    """The schedule was retired."""

    code = "SCHEDULE_RETIRED"


class WorkflowUnknown(EngineError):
    """No worker ever announced the workflow."""

    code = "SCHEDULE_WORKFLOW_UNKNOWN"


class RequestInvalid(EngineError):
    """The request id is not valid."""

    code = "SCHEDULE_REQUEST_ID_INVALID"


class RequestInUse(EngineError):
    """The clientRequestId was used before."""

    code = "SCHEDULE_CLIENT_REQUEST_ID_IN_USE"


class WindowNotFound(EngineError):
    """The schedule has no such window."""

    code = "SCHEDULE_WINDOW_NOT_FOUND"


class WindowDecided(EngineError):
    """The window was decided already."""

    code = "SCHEDULE_WINDOW_DECIDED"


class FireStillOpen(EngineError):
    """The run is open, or may still come."""

    code = "SCHEDULE_FIRE_OPEN"


class LetterNotFound(EngineError):
    """There is no such dead letter."""

    code = "SCHEDULE_LETTER_NOT_FOUND"


class BackfillOverlaps(EngineError):
    """A backfill of some of these windows is being laid."""

    code = "SCHEDULE_BACKFILL_OVERLAPS"


class NotCancellable(EngineError):
    """There is nothing to cancel any more."""

    code = "SCHEDULE_JOB_NOT_CANCELLABLE"


class LedgerError(EngineError):
    """The ledger could not be used."""

    code = "SCHEDULE_LEDGER_ERROR"


class LedgerUnavailable(LedgerError):
    """The ledger's database cannot be reached."""

    code = "SCHEDULE_LEDGER_UNAVAILABLE"


class CommitUnknown(LedgerUnavailable):
    """The connection was lost while a transaction committed: it may have, or not."""

    code = "SCHEDULE_COMMIT_UNKNOWN"


class LedgerTimeout(LedgerUnavailable):
    """The ledger's database ended what took too long."""

    code = "SCHEDULE_LEDGER_TIMEOUT"


class LedgerTooNew(LedgerError):
    """The ledger was written by a newer sched-engine."""

    code = "SCHEDULE_LEDGER_TOO_NEW"


class DefinitionUnreadable(LedgerError):
    """A definition in the ledger cannot be read by this version."""

    code = "SCHEDULE_DEFINITION_UNREADABLE"


class LedgerRequired(LedgerError):
    """This needs a ledger: set SCHED_DATABASE_URL."""

    code = "SCHEDULE_LEDGER_REQUIRED"


class RetentionTooShort(EngineError):
    """The namespace's retention is shorter than four leases."""

    code = "SCHEDULE_RETENTION_TOO_SHORT"


class ArchiveFailed(EngineError):
    """Old rows could not be archived."""

    code = "SCHEDULE_ARCHIVE_FAILED"


class TemporalUnavailable(EngineError):
    """The Temporal server cannot be reached."""

    code = "SCHEDULE_TEMPORAL_UNAVAILABLE"


class EmbeddedError(EngineError):
    """An embedded server cannot run here."""

    code = "SCHEDULE_EMBEDDED_ERROR"
