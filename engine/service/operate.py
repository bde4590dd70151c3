"""Operations on schedules and runs: pause, resume, skip, unskip, trigger, rerun, cancel, retire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from engine.errors import (
    EnqueueFailure,
    FireStillOpen,
    InputInvalid,
    LetterNotFound,
    MomentInPast,
    NotCancellable,
    OwnedByFile,
    ScheduleError,
    WindowDecided,
    WindowNotFound,
)
from engine.ledger import DENIED, DIED, OF_A_WINDOW, OPEN, UNSTARTED, Action, Fire, NewFire, Status
from engine.runtime.apply.definitions import looked_at_next
from engine.runtime.events import AlreadyCancelled, log
from engine.runtime.past_windows import end_backfill, has_window
from engine.runtime.schedule_lock import Locked, stay_unsent
from engine.runtime.workflow_workers import missing_worker_at, no_worker_lives, require_type
from engine.schedules import (
    STARTS,
    STOPS,
    CatchUp,
    CatchUpPolicy,
    Overlap,
    Reason,
    Schedule,
    Sealed,
    Spec,
    Stop,
    Window,
    epoch_ms,
    from_ms,
    is_suffixed,
    parse_workflow_id,
    utc_text,
)
from engine.schedules.planner import Decision, OpenFire, Pause, Plan, Resolved, resolve
from engine.service.base import ReadOperations, as_json, require_request_id, require_version

if TYPE_CHECKING:
    from engine.ledger import Transaction

# --- pause and skip ---
# Applying a file never lifts a pause. The row of a skipped window is written at once, ahead of the
# cursor: the planner passes over windows that have a row, so every replica leaves it alone.


@dataclass(frozen=True, slots=True)
class Paused:
    """Result of a pause; ``before`` is the pause that it replaced."""

    key: str
    pause: Pause
    before: Pause | None


@dataclass(frozen=True, slots=True)
class Resumed:
    """Result of a resume; without ``before`` the schedule was not paused.

    Attributes:
        next_fire_at: when its next window opens.
        caught_up: number of windows of the pause that start after all or wait in the queue.
    """

    key: str
    before: Pause | None
    next_fire_at: datetime | None
    caught_up: int = 0


@dataclass(frozen=True, slots=True)
class Skipped:
    """Result of a skip or unskip; ``changed`` is False if there was nothing to change."""

    key: str
    fire_time: datetime
    workflow_id: str
    changed: bool


class Holding(ReadOperations):
    """Operations on coming windows: pause, resume, skip, unskip."""

    async def pause(self, key: str, *, reason: str | None, until: datetime | None = None) -> Paused:
        """Pause a schedule from now on.

        Windows that opened before are decided as usual. Those that are claimed and not yet being
        sent are skipped. Open runs continue, and queued windows, requested runs and windows of a
        backfill stay. Pausing again replaces the reason and the end.

        Raises:
            MomentInPast: ``until`` has passed.
        """
        async with self._locked(key) as schedule:
            if until is not None and until <= schedule.now:
                raise MomentInPast(f"until is {utc_text(until)}, which has passed")
            before = schedule.state.pause
            return Paused(key, await schedule.pause(reason, until), before)

    async def resume(
        self,
        key: str,
        *,
        reason: str | None = None,
        catch_up: CatchUp | CatchUpPolicy | None = None,
    ) -> Resumed:
        """Resume a schedule from its next window on.

        Args:
            key: the schedule's key.
            reason: the reason, for the audit log.
            catch_up: catch-up of the windows of this pause; the default is the schedule's
                ``catchUp.pause``, which by default starts none of them. A policy alone keeps the
                other fields of the schedule's ``catchUp``.
        """
        async with self._locked(key, all_open=catch_up is not None) as schedule:
            state = schedule.state
            if state.pause is None:
                return Resumed(key, None, _next_window(schedule))
            caught_up = 0
            if state.schedule.enabled:  # else the file still disables it and decides on its windows
                own = state.schedule.catch_up
                if isinstance(catch_up, str):
                    catch_up = own.model_copy(update={"policy": catch_up})
                planned = await schedule.decide(catch_up or own.after("pause"))
                caught_up = sum(each.may_start for each in planned.decisions)
            await schedule.transaction.resume(key, _next_look(schedule))
            await schedule.act("resume", reason=reason, before=_shown(state.pause))
            return Resumed(key, state.pause, _next_window(schedule), caught_up)

    async def skip(self, key: str, at: datetime, *, reason: str | None = None) -> Skipped:
        """Skip the window of a schedule that opens at ``at``.

        A window that has opened can be skipped until its start is being sent, which a spread or a
        rate may delay.

        Raises:
            WindowNotFound: no window opens then.
            WindowDecided: it was started, or decided otherwise.
            MomentInPast: it lies before the definition, or was decided long ago.
        """
        async with self._locked(key) as schedule:
            window, workflow_id = _window(schedule, at)
            why = _by_a_user(reason)
            fire = await schedule.transaction.fire(workflow_id)
            if fire and fire.status == "skipped" and fire.reason_code == "user":
                return Skipped(key, at, workflow_id, changed=False)
            if fire and not await schedule.transaction.give_up([workflow_id], why):
                raise WindowDecided(f"{workflow_id} is {fire.status} already")
            if fire is None:
                state = schedule.state
                if at <= state.cursor:
                    raise MomentInPast(
                        f"{utc_text(at)} has passed already",
                        hint=f"see `sched fires {key}` for what became of it",
                    )
                decision = Decision(window, "skipped", why)
                await schedule.transaction.note_ahead(Plan(state, (decision,), state.cursor, None))
            await schedule.act(
                "skip",
                reason=reason,
                workflow_id=workflow_id,
                before={"status": fire.status} if fire else None,
                after={"status": "skipped", "fireTime": at},
            )
            return Skipped(key, at, workflow_id, changed=True)

    async def unskip(self, key: str, at: datetime, *, reason: str | None = None) -> Skipped:
        """Undo the skip of a window that has not opened yet.

        Raises:
            WindowNotFound: no window opens then.
            MomentInPast: it has opened already; a `rerun` or a `backfill` can start it.
        """
        async with self._locked(key) as schedule:
            window, workflow_id = _window(schedule, at)
            if at <= schedule.state.cursor:
                raise MomentInPast(
                    f"{utc_text(at)} has passed already",
                    hint="start it with `sched backfill --include user`",
                )
            changed = await schedule.transaction.unskip(key, window.series, at)
            if changed:
                before = {"status": "skipped", "fireTime": at}
                await schedule.act("unskip", reason=reason, workflow_id=workflow_id, before=before)
            return Skipped(key, at, workflow_id, changed=changed)


def _by_a_user(reason: str | None) -> Reason:
    return Reason("user", f"user: {reason}" if reason else "user")


def _next_look(schedule: Locked) -> datetime | None:
    state = replace(schedule.state, pause=None)
    return looked_at_next(state, state.schedule, state.cursor, schedule.now)


def _next_window(schedule: Locked) -> datetime | None:
    """Return when the next window opens, regardless of fires that wait in the queue."""
    state = replace(schedule.state, pause=None, open_fires=())
    return looked_at_next(state, state.schedule, state.cursor, schedule.now)


def _shown(pause: Pause | None) -> dict[str, Any] | None:
    return None if pause is None else {"paused": asdict(pause)}


def _window(schedule: Locked, at: datetime) -> tuple[Window, str]:
    state = schedule.state
    spec = state.schedule.spec
    if spec.previous(at) != at:
        following = spec.next(at)
        near = f"the next one opens at {utc_text(following)}" if following else None
        raise WindowNotFound(f"{state.key} has no window at {utc_text(at)}", hint=near)
    window = state.window(at)
    return window, window.workflow_id(state.suffixed)


# --- runs ---
# Cancelling a key also ends its backfills, and retires an application's schedule.

_LARGEST_BUCKET = 2**63 - 1
"""Largest bucket that the ledger can store."""
_FIRST_LOOK, _SLOWEST_LOOK = 0.02, 0.5
"""Seconds between looks at a run that a caller waits for; each is 1.5 times as long."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A requested run; ``new`` is False if the same request was made before.

    ``asks``: a worker must first check whether an earlier run is still open. It does so at once;
    then the run starts, or is skipped because of the open one.
    """

    fire: Fire
    new: bool
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Result of a cancel.

    Attributes:
        asked: runs that will be asked to stop; undoing their work may take time.
        skipped: runs whose start was not yet being sent.
        already: runs that had been asked to stop before.
        retired: whether this retired the schedule; only an application's schedule is.
        was_retired: whether it had been retired before, which is not an error
            (``JOB_ALREADY_CANCELLED`` in the log).
        backfills: messages about the backfills that this ended.
    """

    key: str
    asked: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    already: tuple[str, ...] = ()
    retired: bool = False
    was_retired: bool = False
    backfills: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Retired:
    """Result of a retire; ``changed`` is False if the schedule had been retired before."""

    key: str
    at: datetime
    changed: bool


class Running(Holding):
    """Operations on runs: trigger, rerun and cancel; and the end of a schedule."""

    def check_inputs(self, workflows: Iterable[type]) -> None:
        """Have requests refuse an input of their own that these ``@workflow`` classes cannot take.

        Without that a run finds out. Classes of other versions are not compared.
        """
        if not (classes := [*workflows]):
            return
        from engine.flow import definition_of  # it loads Temporal's SDK

        found = filter(None, map(definition_of, classes))
        self._code |= {definition.type: definition for definition in found}

    async def _require_fitting(
        self,
        transaction: Transaction,
        task_queue: str,
        workflow_type: str | None,
        given: tuple[Any, ...],
    ) -> None:
        """Refuse an input that the workflow cannot take, by its class or what workers announced.

        Args:
            transaction: reads what they announced.
            task_queue: of the run.
            workflow_type: its Temporal type.
            given: the input, or none. A sealed one fits.

        Raises:
            InputInvalid: a sentence for each fault.
        """
        if workflow_type is None or (given and isinstance(given[0], Sealed)):
            return
        definition = self._code.get(workflow_type)
        announced = None
        if definition is None:
            announced = await transaction.announced_input(task_queue, workflow_type)
        if definition is None and announced is None:
            return
        from engine.runtime.apply.code_check import announced_faults, input_faults

        faults: list[str] = []
        if definition is not None and given:
            faults = [f"{each.message}; {each.hint}" for each in input_faults(given[0], definition)]
        elif announced is not None:
            faults = announced_faults(given, announced, workflow_type)
        if faults:
            raise InputInvalid(". ".join(faults))

    async def _require_own_input(self, schedule: Locked, given: tuple[Any, ...]) -> None:
        """Refuse an argument of one run that the schedule's workflow cannot take."""
        state = schedule.state
        if given:
            plain = given if isinstance(given[0], Sealed) else tuple(map(as_json, given))
            await self._require_fitting(
                schedule.transaction, state.schedule.task_queue, state.workflow_type, plain
            )

    async def trigger(
        self,
        key: str,
        *,
        reason: str | None = None,
        request_id: str | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
        wait: timedelta | float | None = None,
    ) -> Requested:
        """Start a run of a schedule now, outside its windows; a paused schedule is allowed.

        Args:
            key: the schedule's key.
            reason: the reason, for the audit log.
            request_id: idempotency key; requests with the same id start one run.
            overlap: overlap policy of this run; the default is the schedule's.
            own_input: the argument of this run in a tuple; empty means the schedule's input.
            wait: how long to wait until the run has begun (timedelta or seconds); without it the
                call returns when the request is in the ledger. A run that its overlap policy skips
                is returned.

        Raises:
            EnqueueFailure: with ``wait``: the run has not begun by then, or never can.
            InputInvalid: the workflow cannot take the argument; see ``check_inputs``.
            RequestInvalid: the request id is malformed.
            ScheduleError: ``overlap`` stops the previous run, but several may be open.
            InputsSealed: the project's inputs are sealed, and there is no codec here.
            WorkflowUnknown: no worker has ever announced the workflow.
        """
        request_id = uuid4().hex if request_id is None else request_id
        require_request_id(request_id)
        workflow_id = f"sched:{key}:manual:{request_id}"
        plain, own_input = own_input, await self._sealed_for(key, own_input)
        async with self._locked(key, all_open=overlap is not None) as schedule:
            state = schedule.state
            if fire := await _requested_before(schedule, request_id):
                asked = Requested(fire, new=False)
            else:
                await self._require_own_input(schedule, plain)
                moment = from_ms(epoch_ms(schedule.now))
                request = Window(key, state.series, epoch_ms(moment), moment)
                asked = await _ask(
                    schedule, "manual", request, workflow_id, overlap, own_input, reason
                )
        if wait is None:
            return asked

        async def unserved() -> str | None:
            of, workflow = state.schedule, state.workflow_type or state.schedule.workflow
            lane = "" if of.external else of.task_queue  # in shadow mode it starts this one run
            missing = missing_worker_at(state.project, lane, workflow, await self.served())
            return no_worker_lives({missing: 1}) if missing else None

        refused = DENIED - {"skipped"}
        begun = await self._begun(asked.fire, wait, refused=refused, unserved=unserved)
        return replace(asked, fire=begun)

    async def rerun(
        self,
        name: str,
        bucket: int | None = None,
        *,
        at: datetime | None = None,
        reason: str | None = None,
        series: int | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
        letter: str | None = None,
    ) -> Requested:
        """Start another run of a decided window, whatever its outcome.

        The run uses the current definition, and ``ctx.fire`` names the window, which ``window``
        finds by these names. With ``letter``, the run id of a dead letter, it starts only if that
        letter is still unresolved.

        Raises:
            InputInvalid: the workflow cannot take the argument; see ``check_inputs``.
            LetterNotFound: the letter has been resolved.
            WindowNotFound: the ledger has no such window.
            FireStillOpen: the window's run is open or may still start.
            WindowDecided: it is a window of shadow mode, which never starts.
            ScheduleError: ``overlap`` stops the previous run, but several may be open.
            InputsSealed: the project's inputs are sealed, and there is no codec here.
            WorkflowUnknown: no worker has ever announced the workflow.
        """
        key = name
        if bucket is None or at is not None or parse_workflow_id(name):
            named = await self.window(name, bucket, at=at)
            key, bucket, series = named.key, named.bucket, named.series or series
        # A window of a former key runs again under the present one.
        key = (await self.present(key)).key
        plain, own_input = own_input, await self._sealed_for(key, own_input)
        async with self._locked(key, all_open=overlap is not None) as schedule:
            if letter is not None and not await schedule.transaction.dead_letters(
                workflow_id=letter
            ):
                raise LetterNotFound(
                    f"{letter} has been resolved meanwhile", hint=f"see `sched fires {key}`"
                )
            fire = await decided_window(schedule, bucket, series)
            if fire.status in OPEN and fire.windows == 1:
                raise FireStillOpen(
                    f"{fire.workflow_id} is {fire.status}", hint="wait for it, or cancel it first"
                )
            if fire.reason_code == "shadow":
                raise WindowDecided(
                    f"{fire.workflow_id} was recorded in shadow mode, in which others run it",
                    hint=f"start a run beside the windows with `sched trigger {key}`",
                )
            opened = fire.fire_time
            if fire.windows > 1:
                # The definition that decided the range gives the bucket its meaning.
                definition = await schedule.transaction.definition(key, fire.definition_version)
                opened = definition.spec.fire_time(bucket)
            window = Window(key, fire.series, bucket, opened)
            first = window.workflow_id(is_suffixed(fire.workflow_id))
            number = 1 + await schedule.transaction.count_reruns(window, first)
            workflow_id = f"{first}:rerun:{number}"
            await self._require_own_input(schedule, plain)
            asked = await _ask(schedule, "rerun", window, workflow_id, overlap, own_input, reason)
            if asked.fire.status in OPEN:
                await _resolve_letters(schedule, bucket, fire.series)
            return asked

    async def ended(
        self, workflow_id: str, *, within: timedelta | float | None = None
    ) -> Fire | None:
        """Wait until a run has ended, or never will begin, and return its row.

        Args:
            workflow_id: its id.
            within: how long to wait (timedelta or seconds); then the row is returned as it is. None
                waits without limit.
        """

        def has_ended(fire: Fire | None) -> bool:
            return fire is None or (fire.status not in OPEN and not fire.is_unread)

        return await self._row_when(has_ended, workflow_id, within)

    async def _row_when(
        self,
        done: Callable[[Fire | None], bool],
        workflow_id: str,
        within: timedelta | float | None,
    ) -> Fire | None:
        """Return the row of a run once it is ``done``, or as it is after ``within``."""
        patience = within.total_seconds() if isinstance(within, timedelta) else within
        until, pause = None if patience is None else time.monotonic() + patience, _FIRST_LOOK
        while True:
            fire = await self._ledger.fire(workflow_id)
            left = pause if until is None else until - time.monotonic()
            if done(fire) or left <= 0:
                return fire
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, _SLOWEST_LOOK)

    async def _begun(
        self,
        fire: Fire,
        wait: timedelta | float | None,
        *,
        refused: Collection[Status],
        unserved: Callable[[], Awaitable[str | None]],
    ) -> Fire:
        """Wait until a run has begun, and return its row.

        Args:
            fire: its row.
            wait: how long; None waits without limit.
            refused: the statuses that mean that it never can.
            unserved: returns why no worker would send it; None if one would.

        Raises:
            EnqueueFailure: it has not begun in time, or never can.
        """

        def has_begun(row: Fire | None) -> bool:
            return row is not None and row.status not in UNSTARTED

        if not has_begun(fire):
            fire = await self._row_when(has_begun, fire.workflow_id, wait) or fire
        if not has_begun(fire):
            raise _late(fire, await unserved() or fire.error)
        if fire.status in refused:
            raise EnqueueFailure(
                f"{fire.workflow_id} is {fire.status}: {fire.error or fire.reason}",
                workflow_id=fire.workflow_id,
                refused=True,
                reason_code=fire.reason_code,
                hint=f"see `sched dead show {fire.workflow_id}`" if fire.status in DIED else None,
            )
        return fire

    async def _sealed_for(self, key: str, own_input: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the input of one run as the ledger stores it.

        Raises:
            ScheduleError: JSON cannot carry it.
            InputsSealed: the project's inputs are sealed, and there is no codec here.
        """
        if not own_input or isinstance(own_input[0], Sealed):
            return own_input
        own_input = tuple(map(as_json, own_input))
        rows = await self._ledger.schedules(key=key)
        return tuple(await self._sealing.seal(rows[0].project, own_input)) if rows else own_input

    async def cancel(
        self,
        name: str,
        *,
        reason: str | None = None,
        terminate: bool = False,
        goes_on: bool = False,
    ) -> Cancelled:
        """Cancel one run by its id, or every open run of a schedule by its key.

        A key also ends every backfill that is still being laid, and retires an application's
        schedule, which then never fires again, unless it ``goes_on``. The key ``@<workflow>``
        cancels the runs that applications have started.

        Raises:
            ScheduleNotFound: there is no such schedule.
            NotCancellable: there is no open run, backfill or application's schedule to end.
        """
        parsed = parse_workflow_id(name)
        key = parsed.key if parsed else name
        async with self._locked(key, all_open=True, retired=True, starts=True) as schedule:
            mine = schedule.state.origin == "api" and not key.startswith(STARTS)
            own = parsed is None and mine and not goes_on
            was_retired = own and schedule.state.retired_at is not None
            retires = own and not was_retired and await _decide_and_look_ahead(schedule)
            fires = [
                fire
                for fire in schedule.state.open_fires
                if parsed is None or fire.workflow_id == name
            ]
            laying = (
                await schedule.transaction.backfills(key, laying=True) if parsed is None else []
            )
            if not fires and not laying and not retires and not was_retired:
                raise NotCancellable(f"no run of {name} is open", hint=f"see `sched fires {key}`")
            why = _by_a_user(reason or f"cancelled by {self._actor}")
            stop: Stop = "terminate" if terminate else "cancel"
            done = await _stop_all(schedule, fires, stop, reason, why)
            ends = [
                await end_backfill(schedule.transaction, each, why, schedule.now, by=self._actor)
                for each in laying
            ]
            if own and not was_retired:
                await schedule.transaction.retire([key], schedule.now)
                await schedule.act("cancel", reason=reason)
        if was_retired:
            log(AlreadyCancelled(key))
        return replace(
            done,
            retired=own and not was_retired,
            was_retired=was_retired,
            backfills=tuple(alert.text for alert in ends),
        )

    async def retire(
        self, key: str, *, version: int | None = None, reason: str | None = None
    ) -> Retired:
        """Retire a schedule that no file declares: it never fires again, and open runs continue.

        A run that no worker has begun to send is given up. What a file declares is retired by
        removing it there; a key that the file applied last lacks can be retired here.

        Args:
            key: the schedule's key.
            version: the definition's version that the caller has read; None retires any.
            reason: the reason, for the audit log.

        Raises:
            ScheduleNotFound: there is no such schedule.
            OwnedByFile: a file declares it.
            VersionOutdated: it was edited after ``version``.
        """
        async with self._locked(key, retired=True) as schedule:
            state = schedule.state
            if state.origin == "file" and not (state.absent_since or state.retired_at):
                raise OwnedByFile(
                    f"{key} is declared by a file",
                    hint="its next change would bring it back: remove it there, and `sched apply"
                    " --prune` retires it; where the file is no more, `sched retire --project"
                    f" {state.project}` retires all that it has",
                )
            require_version(schedule, version)
            if state.retired_at is not None:
                return Retired(key, state.retired_at, changed=False)
            await schedule.decide(then="retired")
            await schedule.transaction.retire([key], schedule.now)
            await schedule.act("retire", reason=reason)
            return Retired(key, schedule.now, changed=True)


def _late(fire: Fire, why: str | None) -> EnqueueFailure:
    return EnqueueFailure(
        f"{fire.workflow_id} has not begun yet{f': {why}' if why else ''}",
        workflow_id=fire.workflow_id,
        refused=False,
        reason_code=fire.reason_code,
        hint="it begins once it can; the same call with the same id waits for it again",
    )


async def _resolve_letters(schedule: Locked, bucket: int, series: int) -> None:
    """Resolve the dead letters of a window that runs again."""
    found = await schedule.transaction.dead_letters(schedule.state.key, bucket=bucket)
    await schedule.transaction.resolve_dead_letters(
        [
            letter.workflow_id
            for letter in found
            if letter.kind in OF_A_WINDOW and (letter.series, letter.windows) == (series, 1)
        ]
    )


async def decided_window(schedule: Locked, bucket: int, series: int | None) -> Fire:
    """Return the row of a window: its own, or that of a range that includes it.

    Raises:
        WindowNotFound: there is no such row.
    """
    state, transaction = schedule.state, schedule.transaction
    fire = None
    if possible := abs(bucket) <= _LARGEST_BUCKET:
        fire = await transaction.window(state.key, bucket, series)
    moment = _opens(state.schedule.spec, bucket) if possible and fire is None else None
    if moment is not None and series in {None, state.series}:
        fire = await transaction.covering(state.key, moment)
        # The row found may be a range of an older series, or of a definition without this window.
        if fire and (
            fire.series != state.series or not await has_window(transaction, fire, moment)
        ):
            fire = None
    if fire is None:
        raise WindowNotFound(
            f"the ledger has no window {bucket} of {state.key}",
            hint=f"see `sched fires {state.key}`",
        )
    return fire


def _opens(spec: Spec, bucket: int) -> datetime | None:
    """Return when a window opens; None if that is beyond the range of ``datetime``."""
    try:
        return spec.fire_time(bucket)
    except OverflowError:
        return None


async def _ask(
    schedule: Locked,
    kind: Literal["manual", "rerun"],
    window: Window,
    workflow_id: str,
    overlap: Overlap | None,
    own_input: tuple[Any, ...],
    reason: str | None,
) -> Requested:
    state, transaction = schedule.state, schedule.transaction
    require_type(state)
    _require_one_previous(state.schedule, overlap)
    await schedule.read_line(overlap or state.schedule.overlap)
    resolved = _resolved(schedule, window, workflow_id, overlap)
    while not await stay_unsent(transaction, resolved.moves):
        (schedule.state,) = await transaction.read([state.key], all_open=True)
        resolved = _resolved(schedule, window, workflow_id, overlap)
    (decision,) = resolved.decisions
    await transaction.move(state, resolved.moves)
    new = NewFire.under(
        state,
        window,
        workflow_id,
        decision.verdict,
        kind,
        kind=kind,
        reason=decision.reason,
        overlap=decision.overlap or overlap,
        own_input=own_input,
    )
    await transaction.request(new)
    if decision.overlap:
        await transaction.make_due([state.key])
    await schedule.act(
        "trigger" if kind == "manual" else kind,
        reason=reason,
        workflow_id=workflow_id,
        after={"status": new.status, "reason": new.reason},
    )
    fire = await transaction.fire(workflow_id)
    if fire is None:
        raise AssertionError("it was written in this transaction")
    return Requested(fire, new=True, asks=decision.overlap is not None)


async def _requested_before(schedule: Locked, request_id: str) -> Fire | None:
    """Return the run that was requested under this id, by whichever key of the schedule."""
    for key in (schedule.state.key, *schedule.state.former):
        if fire := await schedule.transaction.fire(f"sched:{key}:manual:{request_id}"):
            return fire
    return None


def _require_one_previous(schedule: Schedule, overlap: Overlap | None) -> None:
    most = schedule.max_concurrent_runs
    if overlap in STOPS and most > 1:
        raise ScheduleError(
            f"{schedule.key} has up to {most} runs at once, and with overlap {overlap} it is not"
            " known which of them is the previous one",
            hint="write allow, queue, queue_one or skip, or cancel runs first",
        )


def _resolved(
    schedule: Locked, window: Window, workflow_id: str, overlap: Overlap | None
) -> Resolved:
    """Apply the overlap policy: requested runs queue with the windows of their key."""
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


async def _stop_all(
    schedule: Locked, fires: list[OpenFire], stop: Stop, reason: str | None, why: Reason
) -> Cancelled:
    """Skip starts that are not yet being sent, request the other runs to stop, and audit each.

    In bulk: a backfill may have left thousands, and the schedule's lock blocks all its starts.
    """
    state, transaction = schedule.state, schedule.transaction
    given_up = await transaction.give_up([fire.workflow_id for fire in fires], why)
    left = [fire for fire in fires if fire.workflow_id not in given_up]
    asked = [fire for fire in left if not _was_requested(fire, stop)]
    await transaction.stop([fire.fire_id for fire in asked], stop, reason=why)
    noted = [fire for fire in fires if fire.workflow_id in given_up] + asked
    actions = [
        Action(
            state.project,
            state.key,
            "cancel",
            reason,
            fire.workflow_id,
            before={"status": fire.status, "stop": fire.stop},
            after={"status": "skipped"} if fire.workflow_id in given_up else {"stop": stop},
        )
        for fire in noted
    ]
    await transaction.act(actions, by=schedule.by)
    return Cancelled(
        state.key,
        asked=tuple(fire.workflow_id for fire in asked),
        skipped=tuple(fire.workflow_id for fire in fires if fire.workflow_id in given_up),
        already=tuple(fire.workflow_id for fire in left if _was_requested(fire, stop)),
    )


async def _decide_and_look_ahead(schedule: Locked) -> bool:
    """Decide the windows up to now, so they can be skipped; return whether more are to come."""
    await schedule.decide(then="retired")
    (schedule.state,) = await schedule.transaction.read([schedule.state.key], all_open=True)
    return schedule.state.schedule.spec.next(schedule.now) is not None


def _was_requested(fire: OpenFire, stop: Stop) -> bool:
    return fire.stop in {stop, "terminate"}
