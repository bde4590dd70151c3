"""Operations to move from another scheduler, and to another Temporal namespace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Protocol

from engine.audit.comparison import (
    Comparison,
    NativeState,
    OurWindow,
    TheirSource,
    TheirStarts,
    compare,
    windows_of,
)
from engine.errors import TakeoverRefused, TakeoverUncertain
from engine.ledger import Binding, TemporalNamespace
from engine.runtime.schedule_lock import Locked
from engine.schedules import NATIVE, TICK, Schedule, exact_text, format_duration, utc_text
from engine.service.audit import Accounts

LAG: Final = timedelta(seconds=10)
"""What opened more recently is not compared: visibility may not show its run yet."""
TOLERANCE: Final = timedelta(seconds=5)

_ROOM: Final = timedelta(seconds=5)
"""Least time before the first window here, so that the other scheduler surely ends before it."""
_MARGIN: Final = timedelta(seconds=2)
"""How long before it the end has to be confirmed."""
_VERSIONS: Final = 1000
_ASKED: Final = timedelta(seconds=3)


class EndsNative(Protocol):
    """Reads and ends native schedules."""

    async def state(self, name: str) -> NativeState | None:
        """Return the state of a schedule; None if there is none of this ID."""

    async def end(self, name: str, at: datetime, *, note: str, within: timedelta) -> bool:
        """Let it start nothing for a moment after ``at``; return whether that is certain."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Result of a take-over.

    Attributes:
        native: the ID of the native schedule, which starts every window before ``at``.
        at: the engine starts every window from then on.
        notes: what could not be checked, a sentence each.
    """

    key: str
    native: str
    at: datetime
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MoveReport:
    """Result of a move to another Temporal namespace.

    Attributes:
        bindings: the Temporal namespaces that the ledger belongs, or has belonged, to.
        moved_from: where windows were claimed before; None if that is the same, or there was none.
        unvouched: number of fires that have become unvouched.
        lost: number of open runs that count as lost from now on.
    """

    bindings: Sequence[Binding]
    moved_from: str | None = None
    unvouched: int = 0
    lost: int = 0


class Takeovers(Accounts):
    """Operations to compare with another scheduler, to take over from it, and to move Temporal."""

    async def move(self, to: TemporalNamespace, *, old_is_gone: bool = False) -> MoveReport:
        """Let the workers of a Temporal namespace claim windows from now on, and no others.

        Those of the namespace before look after what they have begun, until it has ended or
        ``close_moved`` is called; with ``old_is_gone`` that is done at once. Repeating it changes
        nothing.
        """
        was = next((each for each in await self._ledger.bindings() if each.current), None)
        moves = was is None or was.namespace_id != to.id
        if moves:
            async with self._ledger.transaction() as transaction:
                await transaction.bind_to(to, by=self._actor)
        before = was.place if was and moves else None
        if old_is_gone:
            return replace(await self.close_moved(), moved_from=before)
        return MoveReport(await self._ledger.bindings(), before)

    async def close_moved(self) -> MoveReport:
        """End what is open in Temporal namespaces that the ledger was moved away from.

        Fires that may have been started there are unvouched, and open runs are lost.
        """
        unvouched, lost, more = 0, 0, True
        while more:
            async with self._ledger.transaction() as transaction:
                some, others, more = await transaction.close_bindings()
            unvouched, lost = unvouched + some, lost + others
        await self._ledger.wake()  # windows may have waited for runs that are lost
        return MoveReport(await self._ledger.bindings(), unvouched=unvouched, lost=lost)

    async def compare(
        self,
        since: datetime | timedelta,
        theirs: TheirStarts,
        *,
        key: str | None = None,
        project: str | None = None,
        source: TheirSource | None = None,
        tolerance: timedelta = TOLERANCE,
        lag: timedelta = LAG,
    ) -> list[Comparison]:
        """Compare recorded windows with the runs that another scheduler has started.

        Without a key all schedules in shadow mode are compared, each with the native schedule that
        its metadata names as ``temporalSchedule``, or that has its key as ID. A run of a native
        schedule that several replace belongs to whichever of them has its window.

        Args:
            since: the first fire time, or how long before now it is by the ledger's clock.
            theirs: the runs in Temporal.
            key: only this schedule, in whichever mode it is now.
            project: only this project's schedules.
            source: the runs to compare with; only with a key.
            tolerance: how far the moment of a run may be from its window; at most half the
                distance between two windows.
            lag: windows and runs that are more recent are left out.

        Raises:
            MomentInFuture: ``since`` is to come.
            ScheduleNotFound: there is no such schedule.
            TemporalUnavailable: Temporal did not answer.
        """
        first, now = await self._since(since)
        every = await self.schedules()
        rows = [await self.schedule(key)] if key else every
        replacing = defaultdict[str, set[str]](set)
        if source is None:  # several schedules may replace one that has several calendars
            for row in every:
                if row.schedule is not None:
                    replacing[native_of(row.schedule)].add(row.key)
        found = []
        for row in rows:
            schedule = row.schedule
            in_project = project is None or row.project == project
            if schedule is None or not (key or (schedule.mode == "shadow" and in_project)):
                continue
            wanted = source or TheirSource("temporal_schedule", native_of(schedule))
            found.append(
                await self._compared(
                    schedule,
                    row.project,
                    wanted,
                    theirs,
                    (first, now - lag),
                    tolerance,
                    beside=sorted(replacing[wanted.name] - {row.key}),
                )
            )
        return found

    async def _compared(
        self,
        schedule: Schedule,
        project: str,
        source: TheirSource,
        theirs: TheirStarts,
        stretch: tuple[datetime, datetime],
        tolerance: timedelta,
        *,
        beside: Sequence[str],
    ) -> Comparison:
        key, (since, until) = schedule.key, stretch
        versions = await self._ledger.definition_versions(key, limit=_VERSIONS)
        begins = min(each.effective_from for each in versions)
        (standing,) = await self._ledger.standings([key])
        notes = []
        if begins > since:
            notes.append(f"compared since it was declared, at {utc_text(begins)}")
        following = schedule.spec.next(standing.cursor)
        if following is not None and following <= until and not standing.idle:
            until = following - TICK
            notes.append(f"the window of {utc_text(following)} and later ones are not decided yet")
        since = max(since, begins)
        read = await theirs.read(source, since - tolerance, until + tolerance)
        if read.kept_since is not None and read.kept_since > since:
            since = read.kept_since
            notes.append(f"compared since {utc_text(since)}: Temporal may not keep older runs")
        ours, *others = [
            await self._windows(each, since - tolerance, until + tolerance)
            for each in (key, *beside)
        ]
        result = compare(
            schedule,
            project,
            source,
            ours,
            read,
            since=since,
            until=until,
            tolerance=tolerance,
            beside=[each.at for windows in others for each in windows if each.is_owed],
        )
        return replace(result, notes=(*notes, *result.notes))

    async def _windows(self, key: str, since: datetime, until: datetime) -> list[OurWindow]:
        rows = [row async for row in self._rows(key, since, until)]
        definitions = {}
        async with self._ledger.transaction() as transaction:
            for version in {row.definition_version for row in rows if row.windows > 1}:
                definitions[version] = await transaction.definition(key, version)
        return [*windows_of(rows, definitions, since, until)]

    async def take_over(
        self, key: str, native: EndsNative, *, name: str | None = None, reason: str | None = None
    ) -> TakenOver:
        """Let a native Temporal Schedule end where the shadow mode of a schedule does.

        Its windows before ``shadowUntil`` are the native schedule's, those from then on are the
        engine's: both by their fire times, so that it does not matter when either acts. Repeating
        it changes nothing.

        Args:
            key: the schedule, with ``mode: shadow`` and a ``shadowUntil`` that is to come.
            native: the native schedules of the namespace.
            name: the ID of the native schedule; by default as in ``compare``.
            reason: the reason, for the audit log.

        Raises:
            ScheduleNotFound: there is no such schedule.
            TakeoverRefused: windows would be lost or run twice; nothing was changed.
            TakeoverUncertain: the native schedule did not confirm its end in time.
            TemporalUnavailable: Temporal did not answer.
        """
        async with self._locked(key) as schedule:  # so that no edit moves the end meanwhile
            declared = schedule.state.schedule
            name = name or native_of(declared)
            at = _first_here(schedule)
            state = await native.state(name)
            if state is None:
                raise TakeoverRefused(
                    f"Temporal has no schedule {name}", hint="`temporal schedule list` shows all"
                )
            now = await schedule.transaction.now()  # it may have waited for Temporal
            notes = _agreeing(declared, name, state, now, at)
            within = at - now - _MARGIN
            note = f"sched-engine starts its windows from {utc_text(at)} on, as schedule {key}"
            if not await native.end(name, at - TICK, note=note, within=within):
                raise TakeoverUncertain(
                    f"schedule {name} did not confirm in time that it ends before {utc_text(at)}",
                    hint=f"repeat it, or give {key} a later shadowUntil",
                )
            after = {"temporalSchedule": name, "from": exact_text(at)}
            await schedule.act("takeover", reason=reason, after=after)
        return TakenOver(key, name, at, notes)


def native_of(schedule: Schedule) -> str:
    """Return the ID of the native schedule that a schedule replaces."""
    return str(schedule.metadata.get(NATIVE, schedule.key))


def _first_here(schedule: Locked) -> datetime:
    """Return the moment from which on the engine starts the windows of a schedule.

    Raises:
        TakeoverRefused: it has none, it is too soon or past, or the schedule is on hold.
    """
    declared, key = schedule.state.schedule, schedule.state.key
    if declared.shadow_end is None or declared.shadow_until is None:
        raise TakeoverRefused(
            f"{key} has no moment at which its shadow mode ends",
            hint="write mode: shadow and shadowUntil, some minutes ahead, and apply the file",
        )
    if schedule.state.hold is not None:
        raise TakeoverRefused(f"{key} is {schedule.state.hold}", hint="let it go on first")
    if declared.shadow_end - schedule.now < _ROOM:
        raise TakeoverRefused(
            f"the shadow mode of {key} ends at {utc_text(declared.shadow_end)}, and it is"
            f" {utc_text(schedule.now)}",
            hint=f"write a shadowUntil that is more than {format_duration(_ROOM)} ahead, and apply"
            " the file; `sched compare` shows whether windows ran twice",
        )
    return declared.shadow_end


def _agreeing(
    declared: Schedule, name: str, state: NativeState, now: datetime, at: datetime
) -> tuple[str, ...]:
    """Check that the native schedule starts the windows before ``at``; return what is unknown.

    Raises:
        TakeoverRefused: it does not.
    """
    if state.paused:
        raise TakeoverRefused(
            f"schedule {name} is paused, so that nothing runs the windows before {utc_text(at)}",
            hint="unpause it; if it is to stay so, remove mode: shadow instead",
        )
    if state.ends_at is not None and state.ends_at < at - TICK:
        last = declared.first_start(state.ends_at + TICK)
        if last is not None and last < at:
            raise TakeoverRefused(
                f"schedule {name} ends at {utc_text(state.ends_at)}, before {utc_text(at)}",
                hint="write that moment as shadowUntil, or remove the end there",
            )
    notes = []
    if state.is_limited:
        notes.append(f"schedule {name} ends by itself after a number of runs")
    if state.has_jitter:
        notes.append(f"schedule {name} has jitter, so that its next times could not be compared")
        return tuple(notes)
    theirs = [each for each in state.next_times if now < each < at]
    # Its next times are of a moment near ``now``, since when a window may have opened.
    begin = min(now + _ASKED, theirs[0] - TICK) if theirs else now + _ASKED
    known = min([at - TICK, *state.next_times[-1:]])  # it names some of them
    mine = [*islice(declared.starts(begin, known), len(theirs) + 1)]
    if theirs != mine:
        odd = min({*theirs} ^ {*mine})
        side = "here, and not" if odd in mine else "not here, but"
        raise TakeoverRefused(
            f"a window opens at {utc_text(odd)} {side} in schedule {name}",
            hint="correct the definition until `sched compare` finds no difference",
        )
    return tuple(notes)
