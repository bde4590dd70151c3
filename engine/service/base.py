"""Base of the service: reads of the ledger, and request ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self, TypedDict, Unpack

from pydantic_core import PydanticSerializationError, to_jsonable_python

from engine.errors import (
    RequestInvalid,
    ScheduleError,
    ScheduleNotFound,
    VersionOutdated,
    WindowNotFound,
    nearest,
    question,
)
from engine.ledger import (
    POLLS_COUNT_FOR,
    ActionRow,
    Backfill,
    DataGap,
    Fire,
    JobStatus,
    NextFire,
    RunDetails,
    RunSummary,
    ScheduleFilter,
    ScheduleKind,
    ScheduleRow,
    Served,
    Start,
    State,
    Status,
    Wanted,
)
from engine.runtime.schedule_lock import Locked, locked
from engine.runtime.sealing import Sealing
from engine.runtime.settings import Settings, default_project
from engine.runtime.workflow_workers import left_alone
from engine.schedules import (
    EARLIEST,
    HORIZON,
    KEY,
    REQUEST_ID,
    STARTS,
    ReasonCode,
    Sealed,
    from_seconds,
    parse_workflow_id,
    utc_text,
)
from engine.schedules.planner import Origin

if TYPE_CHECKING:
    from temporalio.client import Client
    from temporalio.converter import DataConverter

    from engine.flow import WorkflowDefinition
    from engine.ledger import Ledger

# --- reads ---
# Read operations on the ledger, for operators and applications.

FIRST_MOMENT: Final = from_seconds(EARLIEST)
LAST_MOMENT: Final = from_seconds(HORIZON)


class Filters(TypedDict, total=False):
    """Filters of schedules, all of which have to match; see ``ScheduleFilter``."""

    origin: Origin | None
    kind: ScheduleKind | None
    state: State | None
    status: JobStatus | None
    last_status: Status | None
    workflow: str | None
    topic: str | None
    tag: str | None
    owner_id: str | None
    tenant_id: str | None
    correlation_id: str | None
    request_id: str | None
    metadata: Mapping[str, Any]
    key_prefix: str | None
    keys: tuple[str, ...]
    enabled: bool | None
    due_before: datetime | None


@dataclass(frozen=True, slots=True)
class NamedWindow:
    """A window that a caller has named.

    Attributes:
        key: the schedule's key.
        bucket: its number.
        series: its series; None is that of the present definition.
        at: when it opens.
        fire: its row, or that of a range that has it; None if the ledger has none.
    """

    key: str
    bucket: int
    series: int | None
    at: datetime
    fire: Fire | None


def checked_project(value: Any) -> str:
    """Return the name of a project.

    Raises:
        ScheduleError: it is none.
    """
    if not isinstance(value, str) or not KEY.fullmatch(value):
        raise ScheduleError("project is no name of a project", hint="use a-z, 0-9, '.', '_', '-'")
    return value


def require_in_order(begin: datetime, end: datetime) -> None:
    """Check that a range of moments does not end before it begins.

    Raises:
        ScheduleError: it does.
    """
    if begin > end:
        raise ScheduleError(
            f"the range begins at {utc_text(begin)} and ends before that, at {utc_text(end)}",
            hint="write the earlier moment first",
        )


class ReadOperations:
    """Read operations on the schedules and fires of one namespace.

    Attributes:
        project: the project of what an application declares without one.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        actor: str,
        migrated: tuple[int, ...] = (),
        data_converter: DataConverter | Callable[[], DataConverter | None] | None = None,
        client: Client | Callable[[], Awaitable[Client]] | None = None,
        project: str | None = None,
    ) -> None:
        self._ledger, self._actor = ledger, actor
        self.project = project or default_project()
        self._code: dict[str, WorkflowDefinition] = {}
        if data_converter is None and client is not None and not callable(client):
            data_converter = client.data_converter
        self._client, self._converter = client, data_converter
        self._sealing = Sealing(ledger, data_converter, by=actor)
        self.migrated = migrated

    def acting(self, actor: str) -> Self:
        """Return this service on behalf of another actor, for the audit log."""
        other = copy(self)
        other._actor = actor  # noqa: SLF001 - its own
        return other

    def project_of(self, given: str | None) -> str:
        """Return the project that a caller names, or the service's own.

        Raises:
            ScheduleError: the name is none of a project.
        """
        return self.project if given is None else checked_project(given)

    async def schedules(
        self, project: str | None = None, **filters: Unpack[Filters]
    ) -> list[ScheduleRow]:
        """Return the schedules that match all given filters in key order, retired ones included.

        A schedule matches ``metadata`` if its own contains at least these items. The rows
        ``@<workflow>`` of starts by applications are left out; ``schedule`` returns them, and opens
        sealed inputs, which stay sealed here. ``ScheduleService.list`` has pages.
        """
        wanted = ScheduleFilter(project=project, **filters)
        return await self._ledger.schedules(wanted=wanted)

    async def children(self, key: str) -> list[str]:
        """Return the schedules that wait for this one's windows, in key order."""
        return await self._ledger.children(key)

    async def keys_of(self, key: str) -> list[str]:
        """Return all keys that a schedule has had, by any of them, the present one first."""
        return await self._ledger.keys_of(key)

    async def find(self, key: str) -> ScheduleRow | None:
        """Return one schedule, even a retired one; None if the ledger has no such key."""
        for row in await self._ledger.schedules(key=key):
            return await self._shown(row)
        return None

    async def schedule(self, key: str) -> ScheduleRow:
        """Return one schedule, even a retired one.

        Raises:
            ScheduleNotFound: the ledger has no such key; the hint names similar ones.
        """
        if (row := await self.find(key)) is not None:
            return row
        raise not_found(key, [row.key for row in await self.schedules()])

    async def present(self, key: str) -> ScheduleRow:
        """Return the schedule that has, or once had, this key; see ``schedule``."""
        row = await self.schedule(key)
        return await self.schedule(row.successor) if row.successor else row

    async def _shown(self, row: ScheduleRow) -> ScheduleRow:
        """Return a row with its input in plain, if that can be read here."""
        if row.schedule is None or not isinstance(row.schedule.input, Sealed):
            return row
        return replace(row, schedule=await self._sealing.shown_in(row.schedule))

    async def count(self, project: str) -> int:
        """Return the number of schedules of the project that are not retired."""
        return await self._ledger.count_schedules(project)

    async def served(self) -> Served:
        """Return each project and task queue that a worker serves now, with its workflow types.

        Three missed heartbeats mean a dead worker.
        """
        return await self._ledger.served(alive=self._settings.alive)

    @property
    def _settings(self) -> Settings:
        """Settings of the environment."""
        return Settings.from_environment()

    async def left_alone(self, rows: Iterable[ScheduleRow]) -> list[str]:
        """Return warnings about task queues of external schedules that have no poller.

        Workers record Temporal's answers in the ledger. Task queues without an answer in the last
        five minutes are omitted.
        """
        queues = {
            row.schedule.task_queue
            for row in rows
            if row.schedule and row.schedule.external and row.state != "retired"
        }
        polled = await self._ledger.polled_queues(within=POLLS_COUNT_FOR) if queues else []
        return left_alone(polled, queues)

    async def wanted(self, project: str) -> list[Wanted]:
        """Return the task queues and workflows that a project's active schedules need."""
        return await self._ledger.wanted(project)

    async def upcoming(self, project: str, limit: int = 5) -> list[NextFire]:
        """Return the next fire of each of the project's schedules, earliest first."""
        return await self._ledger.upcoming(project, limit)

    async def overflow(self, key: str) -> tuple[int, datetime | None]:
        """Return how many windows of the key found its queue full, and when the last one opened."""
        return await self._ledger.overflow(key)

    async def data_gaps(self, key: str, *, limit: int = 20) -> list[DataGap]:
        """Return data ranges of the key that no run covers, newest first; see docs/schedules.md."""
        return await self._ledger.data_gaps(key, limit=limit)

    async def fires(
        self,
        *,
        key: str | None = None,
        status: Status | None = None,
        reason_code: ReasonCode | None = None,
        since: datetime = FIRST_MOMENT,
        until: datetime = LAST_MOMENT,
        limit: int = 50,
    ) -> list[Fire]:
        """Return fires in ``since <= fire_time <= until``, newest fire time first.

        Raises:
            ScheduleError: ``since`` is after ``until``.
        """
        require_in_order(since, until)
        return await self._ledger.fires(
            key=key, status=status, reason_code=reason_code, since=since, until=until, limit=limit
        )

    async def fires_page(
        self,
        key: str,
        *,
        statuses: Collection[Status] = (),
        reason_code: ReasonCode | None = None,
        since: datetime = FIRST_MOMENT,
        until: datetime = LAST_MOMENT,
        after: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> list[Fire]:
        """Return fires of a key in ``since <= fire_time <= until``, newest fire time first.

        Args:
            key: the schedule's key.
            statuses: only these; without any, all.
            reason_code: only those that have it.
            since: the first fire time.
            until: the last fire time.
            after: fire time and run id of the last fire of the page before.
            limit: the most fires to return.

        Raises:
            ScheduleError: ``since`` is after ``until``.
        """
        require_in_order(since, until)
        # A cursor at `until` itself goes on there; one behind it is of another list.
        last, behind = after if after is not None and after[0] <= until else (until, "")
        found: list[Fire] = []
        for status in statuses or (None,):
            found += await self._ledger.fires(
                key=key,
                status=status,
                reason_code=reason_code,
                since=since,
                until=last,
                after=behind,
                limit=limit,
            )
        found.sort(key=lambda fire: fire.workflow_id)
        return sorted(found, key=lambda fire: fire.fire_time, reverse=True)[:limit]

    async def fire_at(self, key: str, at: datetime) -> Fire | None:
        """Return the fire of the window of that fire time; None if the ledger has none."""
        async with self._ledger.transaction() as transaction:
            return await transaction.covering(key, at)

    async def window(
        self, name: str, bucket: int | None = None, *, at: datetime | None = None
    ) -> NamedWindow:
        """Return the window that a caller names: by the id of a run, or by a key and one of two.

        Args:
            name: the schedule's key, or the id of a run of the window: its own, or a rerun's.
            bucket: the window's number, with a key.
            at: when the window opens, with a key.

        Raises:
            ScheduleNotFound: there is no such schedule.
            WindowNotFound: the id is of no window, or no window opens then.
            ScheduleError: a key alone, or more than is needed.
        """
        parsed = parse_workflow_id(name)
        given = [parsed is not None, bucket is not None, at is not None]
        if sum(given) != 1:
            raise ScheduleError(
                f"{name} names {'no window' if not any(given) else 'a window more than once'}",
                hint="give a key with a bucket or with the time of the window, or the id of a run",
            )
        if parsed is None:
            row = await self.schedule(name)
            return await (self._opening(row, at) if at else self._numbered(row, bucket or 0, None))
        if parsed.bucket is None:
            raise WindowNotFound(
                f"{name} is a run of no window", hint="see `sched fires` for those of windows"
            )
        return await self._numbered(await self.schedule(parsed.key), parsed.bucket, name)

    async def _opening(self, row: ScheduleRow, at: datetime) -> NamedWindow:
        fire = await self.fire_at(row.key, at)
        if fire is not None and fire.windows == 1:
            return NamedWindow(row.key, fire.bucket, fire.series, at, fire)
        spec = row.schedule.spec if row.schedule else None
        if spec is None or (spec.previous(at) != at and fire is None):
            near = spec and spec.next(at)
            raise WindowNotFound(
                f"{row.key} has no window at {utc_text(at)}",
                hint=f"the next one opens at {utc_text(near)}" if near else None,
            )
        return NamedWindow(row.key, spec.bucket(at), fire.series if fire else None, at, fire)

    async def _numbered(self, row: ScheduleRow, bucket: int, name: str | None) -> NamedWindow:
        fire = await self.fire(name) if name else None
        if fire is not None:
            return NamedWindow(row.key, fire.bucket, fire.series, fire.fire_time, fire)
        parsed = parse_workflow_id(name) if name else None
        # The same number is another window in another series.
        other = parsed is not None and (parsed.series or 1) != row.series
        try:
            at = row.schedule.spec.fire_time(bucket) if row.schedule and not other else None
        except OverflowError:
            at = None
        if at is None:
            raise WindowNotFound(
                f"the ledger has no window {bucket} of {row.key}",
                hint=f"see `sched fires {row.key}`",
            )
        return NamedWindow(row.key, bucket, None, at, await self.fire_at(row.key, at))

    async def run_details(self, workflow_id: str) -> RunDetails:
        """Return why a run failed, and its tries, as the ledger keeps them."""
        return await self._ledger.run_details(workflow_id)

    async def run_summaries(self, keys: Sequence[str]) -> list[RunSummary]:
        """Return what became of the last runs of these schedules, in their order."""
        return await self._ledger.run_summaries(keys)

    async def count_windows(
        self, first: datetime, last: datetime, *, keys: Sequence[str] = (), most: int
    ) -> Counter[Status]:
        """Count the windows in ``first <= t < last`` by status.

        Args:
            first: the first moment.
            last: the moment after the last one.
            keys: patterns of which one stands for the whole key, as in ``ScheduleFilter``.
            most: the most rows of the ledger to read; what they leave out is not counted.
        """
        return await self._ledger.count_fires(first, last, keys=keys, most=most)

    async def failing(self, *, key: str | None = None, limit: int = 50) -> list[Fire]:
        """Return fires of open runs with a step that keeps failing, newest fire time first."""
        return await self._ledger.failing(key=key, limit=limit)

    async def fire(self, workflow_id: str) -> Fire | None:
        """Return one fire; None if the ledger has none with this id."""
        return await self._ledger.fire(workflow_id)

    async def backfills(self, key: str, *, limit: int = 20) -> list[Backfill]:
        """Return the backfills of a schedule, newest first."""
        return await self._ledger.backfills(key, limit=limit)

    async def laying(self) -> list[Backfill]:
        """Return every backfill that is still being laid."""
        return await self._ledger.laying()

    async def actions(self, *, key: str | None = None, limit: int = 50) -> list[ActionRow]:
        """Return the actions on schedules and runs, newest first."""
        return await self._ledger.actions(key=key, limit=limit)

    @asynccontextmanager
    async def _locked(
        self, key: str, *, all_open: bool = False, retired: bool = False, starts: bool = False
    ) -> AsyncIterator[Locked]:
        """Lock a schedule for one operation; see ``schedule_lock.locked``.

        ``starts``: whether it also applies to the starts of applications (``@<workflow>``).

        The clock is read after the row lock. An operation that changes whether the schedule fires
        first decides every window up to that moment under the old state (rule L3).
        """
        if key.startswith(STARTS) and not starts:
            raise ScheduleNotFound(
                key,
                hint="applications start these runs, each with its own call; `sched cancel`"
                " and `sched dead rerun` take the id of one",
            )
        async with (
            self._waking_others(),
            locked(
                self._ledger, key, by=self._actor, all_open=all_open, retired=retired
            ) as schedule,
        ):
            yield schedule

    @asynccontextmanager
    async def _waking_others(self) -> AsyncIterator[None]:
        """Wake keys that may have waited for this operation, in a queue or for another schedule."""
        async with self._naming():
            yield
            await self._ledger.wake()

    @asynccontextmanager
    async def _naming(self) -> AsyncIterator[None]:
        """Add similar keys to a ``ScheduleNotFound``."""
        try:
            yield
        except ScheduleNotFound as error:
            known = [row.key for row in await self.schedules()]
            raise not_found(error.key, known) from None


def require_version(held: Locked, version: int | None) -> None:
    """Check that the schedule still has the version that the caller has read.

    Raises:
        VersionOutdated: it was edited meanwhile.
    """
    now = held.state.definition_version
    if version is not None and version != now:
        raise VersionOutdated(
            f"{held.state.key} has version {now}, not {version}",
            hint="read it again, and repeat the edit on what it is now",
        )


def not_found(
    key: str,
    known: Collection[str],
    *,
    see: str = "`sched list` shows every key",
    of: str | None = None,
) -> ScheduleNotFound:
    """Return the error for a key that is not in ``known``; its hint names similar ones.

    ``of`` is the misspelt word, where ``key`` says more than that.
    """
    return ScheduleNotFound(key, hint=question(*nearest(of or key, known, most=3), otherwise=see))


# --- request ids ---
# Idempotency keys that callers choose, so that repeating a request is safe.

_SHOWN = 80
"""Characters of an invalid id that the error message quotes."""


def require_request_id(request_id: str) -> None:
    """Check that a request id can be part of a run id.

    Raises:
        RequestInvalid: it cannot.
    """
    if REQUEST_ID.fullmatch(request_id) is None:
        raise RequestInvalid(
            f"request id {request_id[:_SHOWN]!r}", hint="use 1 to 64 of a-z, A-Z, 0-9, _ and -"
        )


# --- workflows and inputs ---
# As applications have them: classes and models, or text and JSON.


def workflow_text(workflow: Any, *, has_input: bool) -> str:
    """Return a workflow as text; of a class, ``name@version``.

    Raises:
        TypeError: it is neither text nor a workflow class, or its ``run`` takes no input, or needs
            one.
    """
    if isinstance(workflow, str):
        return workflow
    # Commands, which name workflows by text, need not load Temporal's SDK.
    from engine.flow import NOT_GIVEN, args_of, definition_of

    definition = definition_of(workflow) if isinstance(workflow, type) else None
    if definition is None:
        raise TypeError(f"a class marked with @workflow, or text, is started; got {workflow!r}")
    args_of(None if has_input else NOT_GIVEN, definition)
    return definition.type


def as_json(given: object) -> Any:
    """Return an input as the JSON that its run reads back.

    Raises:
        ScheduleError: JSON, or the ledger, cannot carry it.
    """
    try:
        value = to_jsonable_python(given)
    except (PydanticSerializationError, ValueError) as error:
        raise ScheduleError(
            f"JSON cannot carry the input: {error}",
            hint="use dataclasses, pydantic models and JSON values",
        ) from error
    return Start.checked_input(value)
