"""Runs that somebody asks for: a manual one, and one more of a window that was decided."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from engine.errors import (
    FireStillOpen,
    LetterNotFound,
    ScheduleError,
    WindowNotFound,
    WorkflowUnknown,
)
from engine.ledger import Ledger
from engine.ledger.fire_records import OPEN, Fire
from engine.ledger.letters import OF_A_WINDOW
from engine.ledger.operating_records import NewRequest
from engine.runtime import unknown
from engine.runtime.planning import holds
from engine.runtime.verbs.locked import Locked, has_window, locked
from engine.runtime.verbs.request_ids import require_request_id
from engine.schedules.decisions import STOPS, Decision, Overlap
from engine.schedules.instants import epoch_ms, from_ms
from engine.schedules.model import Schedule
from engine.schedules.overlap import Resolved, resolve
from engine.schedules.timing import Spec
from engine.schedules.windows import Window, is_suffixed

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
    """Whoever runs a window again has dealt with the dead letters of its earlier runs."""
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
        raise WorkflowUnknown(unknown.reason(state.schedule), cure="start a worker that has it")
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
    """What overlap makes of it: manual runs stand in line with the windows of their key."""
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
