"""Trigger, rerun and cancel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from engine.errors import (
    FireStillOpen,
    LetterNotFound,
    NotCancellable,
    ScheduleError,
    WindowNotFound,
    WorkflowUnknown,
)
from engine.ledger import Ledger
from engine.ledger.fires import OF_A_WINDOW, OPEN, Fire
from engine.ledger.records import Action, Backfill, Included, InLine, NewRequest
from engine.runtime import planning
from engine.runtime.backfills import Considered, end_backfill
from engine.runtime.planning import Locked, has_window, holds, locked
from engine.schedules.ids import Window, is_suffixed, parse_workflow_id
from engine.schedules.model import Schedule
from engine.schedules.planner.decisions import Decision, OpenFire
from engine.schedules.planner.overlap import Resolved, resolve
from engine.schedules.policies import STOPS, Overlap, Stop
from engine.schedules.timing.spec import Spec
from engine.schedules.units import epoch_ms, from_ms
from engine.service.backfill import BackfillRequested, backfill, preview, windows_of
from engine.service.base import ReadOperations, require_request_id
from engine.service.pausing import BY_A_USER

# --- trigger and rerun ---
# Runs that somebody asks for: a manual one, and one more of a window that was decided.

_MOST = 2**63 - 1
"""Of a bucket, as the ledger keeps it."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A run that was asked for; ``new`` is False where the same request came before.

    ``asks``: what may be in its way has to be looked at first. A worker does that at once, and then
    the run starts, or is skipped for one that is open.
    """

    fire: Fire
    new: bool
    asks: bool = False


async def trigger(
    ledger: Ledger,
    key: str,
    *,
    by: str,
    reason: str | None = None,
    request_id: str | None = None,
    overlap: Overlap | None = None,
    own_input: tuple[Any, ...] = (),
) -> Requested:
    """Start a run of a schedule now, besides its windows; also of one that is paused.

    Args:
        ledger: the memory that has it.
        key: of the schedule.
        by: who acts.
        reason: why.
        request_id: names the run; asking twice under one name starts one run.
        overlap: what to keep to, this once; without it the schedule's own policy.
        own_input: the argument of this run alone, in a tuple; empty takes the schedule's.

    Raises:
        RequestInvalid: the request id is not one.
        ScheduleError: ``overlap`` stops the previous run, of a schedule that may have several.
        WorkflowUnknown: no worker ever announced the workflow.
    """
    request_id = request_id or uuid4().hex
    require_request_id(request_id)
    workflow_id = f"sched:{key}:manual:{request_id}"
    async with locked(ledger, key, by=by, all_open=overlap is not None) as schedule:
        if fire := await schedule.transaction.fire(workflow_id):
            return Requested(fire, new=False)
        moment = from_ms(epoch_ms(schedule.now))
        request = Window(key, schedule.state.series, epoch_ms(moment), moment)
        return await _ask(schedule, "manual", request, workflow_id, overlap, own_input, reason)


async def rerun(
    ledger: Ledger,
    key: str,
    bucket: int,
    *,
    by: str,
    reason: str | None = None,
    series: int | None = None,
    overlap: Overlap | None = None,
    own_input: tuple[Any, ...] = (),
    letter: str | None = None,
) -> Requested:
    """Start one more run of a window that was decided, whatever became of it.

    It runs under the present definition, and ``ctx.fire`` names the window. With ``letter``, the
    id of a run that died, only if nobody has dealt with that one yet.

    Raises:
        LetterNotFound: somebody has.
        WindowNotFound: the ledger knows no such window.
        FireStillOpen: its run is open, or may still come.
        ScheduleError: ``overlap`` stops the previous run, of a schedule that may have several.
        WorkflowUnknown: no worker ever announced the workflow.
    """
    async with locked(ledger, key, by=by, all_open=overlap is not None) as schedule:
        if letter is not None and not await schedule.transaction.letters(workflow_id=letter):
            raise LetterNotFound(
                f"somebody has dealt with {letter} meanwhile", cure=f"see `sched fires {key}`"
            )
        fire = await decided_window(schedule, bucket, series)
        if fire.status in OPEN and fire.windows == 1:
            raise FireStillOpen(
                f"{fire.workflow_id} is {fire.status}", cure="wait for it, or cancel it first"
            )
        opened = fire.fire_time
        if fire.windows > 1:  # its number means what the definition meant that decided it
            definition = await schedule.transaction.definition(key, fire.definition_version)
            opened = definition.spec.fire_time(bucket)
        window = Window(key, fire.series, bucket, opened)
        first = window.workflow_id(is_suffixed(fire.workflow_id))
        number = 1 + await schedule.transaction.count_reruns(window, first)
        workflow_id = f"{first}:rerun:{number}"
        asked = await _ask(schedule, "rerun", window, workflow_id, overlap, own_input, reason)
        if asked.fire.status in OPEN:
            await _deal_with(schedule, bucket, fire.series)
        return asked


async def _deal_with(schedule: Locked, bucket: int, series: int) -> None:
    """Resolve the dead letters of a window's earlier runs, because it runs again."""
    found = await schedule.transaction.letters(schedule.state.key, bucket=bucket)
    await schedule.transaction.deal(
        [
            letter.workflow_id
            for letter in found
            if letter.kind in OF_A_WINDOW and (letter.series, letter.windows) == (series, 1)
        ]
    )


async def decided_window(schedule: Locked, bucket: int, series: int | None) -> Fire:
    """Return the row of a window, alone or among others in a range.

    Raises:
        WindowNotFound: there is none.
    """
    state, transaction = schedule.state, schedule.transaction
    fire = None
    if possible := abs(bucket) <= _MOST:
        fire = await transaction.window(state.key, bucket, series)
    moment = _opens(state.schedule.spec, bucket) if possible and fire is None else None
    if moment is not None and series in {None, state.series}:
        fire = await transaction.covering(state.key, moment)
        # What covers the moment may be a range of an older series, or without such a window.
        if fire and (
            fire.series != state.series or not await has_window(transaction, fire, moment)
        ):
            fire = None
    if fire is None:
        raise WindowNotFound(
            f"the ledger has no window {bucket} of {state.key}",
            cure=f"see `sched fires {state.key}`",
        )
    return fire


def _opens(spec: Spec, bucket: int) -> datetime | None:
    """When a window opens; None where the calendar ends before it."""
    try:
        return spec.fire_time(bucket)
    except OverflowError:
        return None


async def _ask(
    schedule: Locked,
    kind: Any,
    window: Window,
    workflow_id: str,
    overlap: Overlap | None,
    own_input: tuple[Any, ...],
    reason: str | None,
) -> Requested:
    state, transaction = schedule.state, schedule.transaction
    if state.workflow_type is None:
        raise WorkflowUnknown(planning.reason(state.schedule), cure="start a worker that has it")
    _require_one_previous(state.schedule, overlap)
    await schedule.read_line(overlap or state.schedule.overlap)
    resolved = _resolved(schedule, window, workflow_id, overlap)
    while not await holds(transaction, resolved.moves):
        (schedule.state,) = await transaction.read([state.key], all_open=True)
        resolved = _resolved(schedule, window, workflow_id, overlap)
    (decision,) = resolved.decisions
    await transaction.move(state, resolved.moves)
    new = NewRequest(
        kind=kind,
        series=window.series,
        bucket=window.bucket,
        fire_time=window.fire_time,
        workflow_id=workflow_id,
        status=decision.verdict,  # type: ignore[arg-type] # a start becomes one of these
        reason=decision.reason,
        overlap=decision.overlap or overlap,
        own_input=own_input,
    )
    await transaction.request(state, new)
    if decision.overlap:
        await transaction.make_due([state.key])
    await schedule.act(
        "trigger" if kind == "manual" else kind, reason=reason, workflow_id=workflow_id,
        after={"status": new.status, "reason": new.reason},
    )  # fmt: skip
    fire = await transaction.fire(workflow_id)
    if fire is None:
        raise AssertionError("it was written in this transaction")
    return Requested(fire, new=True, asks=decision.overlap is not None)


def _require_one_previous(schedule: Schedule, overlap: Overlap | None) -> None:
    most = schedule.max_concurrent_runs
    if overlap in STOPS and most > 1:
        raise ScheduleError(
            f"{schedule.key} has up to {most} runs at once, and with overlap {overlap} nobody could"
            " say which of them is the previous one",
            cure="write allow, queue, queue_one or skip, or cancel runs first",
        )


def _resolved(
    schedule: Locked, window: Window, workflow_id: str, overlap: Overlap | None
) -> Resolved:
    """Return the decision of overlap: manual runs queue with the windows of their key."""
    return resolve(
        overlap or schedule.state.schedule.overlap,
        [Decision(replace(window, fire_time=schedule.now), "claimed")],
        schedule.state.open_fires,
        places=schedule.state.schedule.max_concurrent_runs,
        most_queued=schedule.state.schedule.max_queued,
        named=lambda _: workflow_id,
        final=True,
        standing=schedule.state.schedule.overlap,
        unread=schedule.state.unread,
    )


# --- cancel ---
# Cancels runs, and schedules of applications.
#
# For a run the wish is written down, and a replica carries it out.


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Result of a cancel.

    Attributes:
        asked: runs that will be asked to end; they may take their time to undo what they did.
        skipped: runs that nobody had begun to start.
        already: runs that had been asked before.
        retired: whether the schedule ends with it; only one of an application does.
        was_retired: it had been cancelled before. That is no error.
        backfills: those that were being laid, and end with it, in sentences.
    """

    key: str
    asked: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    retired: bool = False
    was_retired: bool = False
    backfills: tuple[str, ...] = ()


async def cancel(
    ledger: Ledger,
    name: str,
    *,
    by: str,
    reason: str | None = None,
    terminate: bool = False,
) -> Cancelled:
    """Cancel one run by its id, or every open run of a schedule by its key.

    With the key every backfill that is still being laid ends. A schedule that an application asked
    for is retired besides, when its key is given: it never
    fires again.

    Raises:
        ScheduleNotFound: there is no such schedule.
        NotCancellable: nothing of it is open; of an application's schedule, nor is to come.
    """
    parsed = parse_workflow_id(name)
    key = parsed.key if parsed else name
    async with locked(ledger, key, by=by, all_open=True, retired=True) as schedule:
        own = parsed is None and schedule.state.origin == "api"
        was_retired = own and schedule.state.retired_at is not None
        retires = own and not was_retired and await _is_to_come(schedule)
        fires = [
            fire for fire in schedule.state.open_fires if parsed is None or fire.workflow_id == name
        ]
        laying = await schedule.transaction.backfills(key, laying=True) if parsed is None else []
        if not fires and not laying and not retires and not was_retired:
            raise NotCancellable(f"no run of {name} is open", cure=f"see `sched fires {key}`")
        done = await _ended(schedule, fires, "terminate" if terminate else "cancel", reason)
        why = f"{BY_A_USER}: {reason or f'cancelled by {by}'}"
        ends = [
            await end_backfill(schedule.transaction, each, why, schedule.now, by=by)
            for each in laying
        ]
        if own and not was_retired:
            await schedule.transaction.retire([key], schedule.now)
            await schedule.act("cancel", reason=reason)
    return replace(
        done, retired=own and not was_retired, was_retired=was_retired,
        backfills=tuple(alert.text for alert in ends),
    )  # fmt: skip


async def _ended(
    schedule: Locked, fires: list[OpenFire], stop: Stop, reason: str | None
) -> Cancelled:
    """Skip what nobody has begun to send, ask the other runs to end, and note each.

    All at once: under the lock of the schedule nothing of it starts, and a backfill may have left
    thousands.
    """
    why = f"{BY_A_USER}: {reason or f'cancelled by {schedule.by}'}"
    state, transaction = schedule.state, schedule.transaction
    given_up = await transaction.give_up([fire.workflow_id for fire in fires], why)
    left = [fire for fire in fires if fire.workflow_id not in given_up]
    asked = [fire for fire in left if not _is_asked(fire, stop)]
    await transaction.stop([fire.fire_id for fire in asked], stop, reason=why)
    noted = [fire for fire in fires if fire.workflow_id in given_up] + asked
    actions = [
        Action(
            state.project, state.key, "cancel", reason, fire.workflow_id,
            before={"status": fire.status, "stop": fire.stop},
            after={"status": "skipped"} if fire.workflow_id in given_up else {"stop": stop},
        )
        for fire in noted
    ]  # fmt: skip
    await transaction.act(actions, by=schedule.by)
    return Cancelled(
        state.key,
        asked=tuple(fire.workflow_id for fire in asked),
        skipped=tuple(fire.workflow_id for fire in fires if fire.workflow_id in given_up),
        already=tuple(fire.workflow_id for fire in left if _is_asked(fire, stop)),
    )


async def _is_to_come(schedule: Locked) -> bool:
    """Decide what has come, so that it can be given up; whether windows are still to come."""
    await schedule.decide(then="retired")
    (schedule.state,) = await schedule.transaction.read([schedule.state.key], all_open=True)
    return schedule.state.schedule.spec.next(schedule.now) is not None


def _is_asked(fire: OpenFire, stop: Stop) -> bool:
    return fire.stop in {stop, "terminate"}


# --- service methods ---
# The verbs that start runs, and those that end them.


class Running(ReadOperations):
    """Operations on runs: trigger, rerun, cancel."""

    async def trigger(
        self,
        key: str,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
    ) -> Requested:
        """Start a run besides the schedule's windows; see ``requesting.trigger``."""
        async with self._near():
            return await trigger(
                self._ledger, key, by=self._actor, reason=reason, request_id=request_id,
                overlap=overlap, own_input=own_input,
            )  # fmt: skip

    async def rerun(
        self,
        key: str,
        bucket: int,
        *,
        reason: str | None = None,
        series: int | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
    ) -> Requested:
        """Start one more run of a decided window; see ``requesting.rerun``."""
        async with self._near():
            return await rerun(
                self._ledger, key, bucket, by=self._actor, reason=reason, series=series,
                overlap=overlap, own_input=own_input,
            )  # fmt: skip

    async def cancel(
        self, name: str, *, reason: str | None = None, terminate: bool = False
    ) -> Cancelled:
        """Cancel a run, or all of a schedule that an application asked for; see ``stopping``."""
        async with self._near():
            return await cancel(
                self._ledger, name, by=self._actor, reason=reason, terminate=terminate
            )

    async def backfill(
        self,
        key: str,
        begin: datetime,
        end: datetime,
        *,
        reason: str | None = None,
        overlap: InLine | None = None,
        include: Collection[Included] = (),
    ) -> BackfillRequested:
        """Ask for runs of windows of the past that have none; see ``backfilling.backfill``."""
        async with self._near():
            return await backfill(
                self._ledger, key, begin, end, by=self._actor, reason=reason, overlap=overlap,
                include=include,
            )  # fmt: skip

    async def preview_backfill(
        self,
        key: str,
        begin: datetime,
        end: datetime,
        *,
        overlap: InLine | None = None,
        include: Collection[Included] = (),
    ) -> BackfillRequested:
        """Say what ``backfill`` would come to, and ask for nothing. Refuses what it refuses."""
        async with self._near():
            return await preview(
                self._ledger, key, begin, end, by=self._actor, overlap=overlap, include=include
            )

    def windows_of(self, previewed: Backfill) -> AsyncIterator[Considered]:
        """Return each window of a backfill in order: whether it starts, and why or why not."""
        return windows_of(self._ledger, previewed)

    async def laid(self, of: Backfill) -> list[Fire]:
        """Return the fires that a backfill has laid, and that nobody had begun before it."""
        async with self._ledger.transaction(long=True) as transaction:
            rows = await transaction.between(of.key, of.first, of.last)
        return [
            row
            for row in rows
            if row.timing == "backfill"
            and row.fire_time <= of.cursor
            and (row.started_at is None or row.started_at >= of.requested_at)
        ]
