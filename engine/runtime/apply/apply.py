"""Application of a schedule file in one transaction, and its dry run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from engine.errors import EngineError, KeyForeign, KeyInUse, PruneRefused, RevisionTooLow
from engine.ledger import Action, DriftRow, ProjectRow
from engine.runtime.apply.definitions import read_all
from engine.runtime.apply.edits import (
    ApplyReport,
    ApplyTransaction,
    OwesManyError,
    PruneReport,
    Renamed,
    chunks,
    followers,
    hook_edits,
    queue_edits,
    take,
)
from engine.runtime.schedule_lock import decide_ahead, decided_to_the_end, record_decided
from engine.runtime.sealing import Sealing
from engine.schedules import STARTS, TICK, ScheduleFile, escaped, first_of, utc_text
from engine.schedules.diff import AHEAD, Diff, Head, Moved, View, diff, likely_renames, outlook
from engine.schedules.planner import ScheduleState

if TYPE_CHECKING:
    from engine.ledger import Ledger, Transaction

# --- apply ---
# Application of a schedule file to a ledger: idempotent, in one transaction (rule L3).
#
# Every edit takes the schedule's row lock, then reads the clock, decides the windows up to that
# moment under the old definition, and only then writes the new one.

PRUNE_AFTER = timedelta(seconds=30)
"""A key is retired only after an unchanged file has lacked it for this long."""
_NAMED = 5
_AT_ONCE = 200


async def apply(
    ledger: Ledger,
    file: ScheduleFile,
    *,
    by: str,
    force: bool = False,
    prune: bool = False,
    take_from: Renamed | None = None,
    only_newer: bool = False,
    last: str | None = None,
    sealing: Sealing | None = None,
) -> ApplyReport:
    """Make the file's schedules the newest definitions of its project. Never retires a key.

    Args:
        ledger: the ledger to write to.
        file: the file to apply.
        by: the actor that the ledger records.
        force: skip the checks of the revision and of the number of absent keys.
        prune: ``retire_absent`` will follow, so refuse here what it would refuse.
        take_from: the former name of a renamed project, whose keys move.
        only_newer: refuse a file that was replaced by another one before, or has its revision.
        last: the project's current ``applied_digest``; read from the ledger if omitted.
        sealing: seals the inputs; without it there is no codec.

    Raises:
        InputsSealed: the project's inputs are sealed, and there is no codec here.
        KeyForeign: another project owns a key of the file; nothing is applied then.
        RevisionTooLow: a file with a higher ``revision`` was applied, unless forced; or it is not
            newer.
        PruneRefused: ``prune`` would retire more than half of the project, unless forced.
    """
    sealing = sealing or Sealing(ledger)
    if not (force or prune or take_from):
        if last is None:
            last = await applied_digest(ledger, file.project)
        if last == await sealing.file_digest(file.project, file.digest):
            return _unchanged(file)
    file = await sealing.file(file)
    await prepare(file)
    suspect_until = await _suspect_until(ledger, file)
    ahead: list[str] = []
    report = None
    while report is None:
        try:
            report = await _apply(
                ledger,
                file,
                by=by,
                force=force,
                prune=prune,
                take_from=take_from,
                only_newer=only_newer,
                ahead=ahead,
                suspect_until=suspect_until,
                sealing=sealing,
            )
        except KeyInUse:
            continue  # it is visible now, and the file is refused for it
        except OwesManyError as error:
            for key in error.keys:
                await decide_ahead(ledger, key)
            ahead += error.keys
    if report.changed or report.returned or report.renamed:
        await ledger.wake()  # other schedules may have waited for these decisions
    return report


async def _apply(
    ledger: Ledger,
    file: ScheduleFile,
    *,
    by: str,
    force: bool,
    prune: bool,
    take_from: Renamed | None,
    only_newer: bool,
    ahead: Sequence[str],
    suspect_until: datetime | None,
    sealing: Sealing,
) -> ApplyReport:
    async with ledger.transaction(long=True) as transaction:
        head = await transaction.lock_project(file.project)
        stay = await take(transaction, file, take_from)
        if prune and not force:
            # Before any write or wait, so that a refused apply changes nothing.
            heads = await transaction.heads(file.project, ())
            require_half(file, diff(file.project, file.schedules, heads).absent)
        if head and head.applied == file.digest and not force:
            return replace(_unchanged(file), left_behind=stay)
        if not force:
            require_newer(file, head)
        if only_newer and head is not None:
            await _require_not_superseded(transaction, file, head)
        edit = ApplyTransaction(
            transaction, file, by=by, ahead=ahead, suspect_until=suspect_until, sealing=sealing
        )
        report = await edit.write()
    return replace(report, followed=await followers(ledger, edit.moved), left_behind=stay)


async def _suspect_until(ledger: Ledger, file: ScheduleFile) -> datetime | None:
    """Return ``Ledger.suspect_until``; only renames ask."""
    if any(each.was for each in file.schedules):
        return await ledger.suspect_until()
    return None


async def prepare(file: ScheduleFile) -> None:
    """Compute digests and specs before anything is locked.

    Yields to the event loop regularly: 100,000 digests would block it for seconds.
    """
    for number, schedule in enumerate(file.schedules):
        _ = schedule.digest, schedule.spec
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)


def _unchanged(file: ScheduleFile) -> ApplyReport:
    keys = tuple(schedule.key for schedule in file.schedules)
    return ApplyReport(unchanged=keys, project=file.project, already_applied=True)


async def applied_digest(ledger: Ledger, project: str) -> str:
    """Return the digest of the file that was last applied to the project.

    Empty if there is none or if keys of it were refused, so that it can be applied again.
    """
    async with ledger.transaction(long=True) as transaction:
        last = await transaction.lock_project(project)
        return last.applied if last else ""


async def retire_absent(
    ledger: Ledger,
    file: ScheduleFile,
    *,
    by: str,
    absent_for: timedelta = PRUNE_AFTER,
    force: bool = False,
    sealing: Sealing | None = None,
) -> PruneReport:
    """Retire the project's keys that the unchanged file has lacked for ``absent_for``.

    Nothing is retired if a different file has been applied meanwhile.

    Raises:
        InputsSealed: the project's inputs are sealed, and there is no codec here.
        PruneRefused: the file lacks more than half of the project, unless forced.
    """
    sealing = sealing or Sealing(ledger)
    file = replace(file, digest=await sealing.file_digest(file.project, file.digest))
    async with ledger.transaction(long=True) as transaction:
        last = await transaction.lock_project(file.project)
        if last is None or last.file_digest != file.digest:
            return PruneReport()
        heads = await transaction.heads(file.project, ())
        compared = diff(file.project, file.schedules, heads)
        if not force:
            # Count recently absent keys too: otherwise a key would be announced as waiting for
            # retirement, and its retirement refused later.
            require_half(file, compared.absent)
        await transaction.lock_edited(file.project, compared.absent)
        now = await transaction.now()
        since = await transaction.mark_absent(file.project, compared.absent, now)
        ripe = sorted(key for key, moment in since.items() if moment <= now - absent_for)
        if ripe:
            await _retire(transaction, ripe, now)
            why = f"not in {escaped(file.name, one_line=True)}"
            await transaction.act([Action(file.project, key, "retire", why) for key in ripe], by=by)
            await transaction.save_project(file, by=by, refused=last.refused)
    if ripe:
        await ledger.wake()  # other schedules must not wait for retired ones
    waiting = tuple(sorted(set(compared.absent) - set(ripe)))
    return PruneReport(tuple(ripe), waiting, await followers(ledger, ripe))


async def retire_project(
    ledger: Ledger, project: str, *, by: str, reason: str | None = None, forget: bool = False
) -> tuple[str, ...]:
    """Retire every schedule of a project that is no more, and return the keys.

    Its file no longer counts as applied. If it is applied again, its keys return in new series, so
    that no window gets a second run. ``forget`` also has lists leave the project's retired
    schedules out.
    """
    async with ledger.transaction(long=True) as transaction:
        last = await transaction.lock_project(project)
        heads = (await transaction.heads(project, ())).values()
        keys = sorted(
            head.key
            for head in heads
            if head.project == project and not head.retired and not head.key.startswith(STARTS)
        )
        await transaction.lock_edited(project, keys)
        await _retire(transaction, keys, await transaction.now())
        await transaction.act([Action(project, key, "retire", reason) for key in keys], by=by)
        if last or forget:
            name, revision = (last.file_name, last.revision) if last else ("", None)
            none = ScheduleFile(project, None if forget else revision, (), name, digest="")
            await transaction.save_project(none, by=by, forgotten=forget)
    if keys:
        await ledger.wake()  # other schedules must not wait for retired ones
    return tuple(keys)


async def _retire(transaction: Transaction, keys: Sequence[str], now: datetime) -> None:
    """Decide what these keys owe until now, and retire them."""
    for part in chunks(keys):
        states = await read_all(transaction, part)
        await record_decided(
            transaction, states, lambda each: decided_to_the_end(each, now, then="retired")
        )
        await transaction.retire(part, now)


def require_newer(file: ScheduleFile, last: ProjectRow | None) -> None:
    """Refuse a file with a lower revision than the one applied last.

    Raises:
        RevisionTooLow: the file is older.
    """
    newest = last.revision if last else None
    if newest is not None and file.revision is not None and file.revision < newest:
        raise RevisionTooLow(
            f"{file.name} has revision {file.revision}, revision {newest} was applied before",
            hint="apply the newer file, or force this one",
        )


async def _require_not_superseded(
    transaction: Transaction, file: ScheduleFile, last: ProjectRow
) -> None:
    """Refuse a file that comes back after another one, as with a worker that starts again.

    Raises:
        RevisionTooLow: it was applied before, or is another file of the same revision.
    """
    hint = "deploy the newer file; if this one is meant, `sched apply FILE --force`"
    since = f"{last.file_name} of {utc_text(last.applied_at)}, by {last.applied_by}"
    if await transaction.is_superseded(file.project, file.digest):
        raise RevisionTooLow(f"{file.name} was applied before, and replaced by {since}", hint=hint)
    if file.revision is not None and file.revision == last.revision:
        raise RevisionTooLow(
            f"{file.name} has revision {file.revision}, and so has {since}", hint=hint
        )


def require_half(file: ScheduleFile, absent: Sequence[str]) -> None:
    """Refuse a file that lacks more than half of the keys its project has after the apply.

    Raises:
        PruneRefused: more than half of the keys are absent.
    """
    if len(absent) <= len(file.schedules):
        return
    raise PruneRefused(
        f"{len(absent)} of the {len(file.schedules) + len(absent)} schedules of project"
        f" {file.project} are not in {file.name}: {first_of(absent, _NAMED)}; that is more"
        " than half, so none of them is retired, and they continue to fire",
        hint=f"put them back, or retire them with `sched apply {file.name} --prune --force`",
    )


# --- dry run ---
# Dry run of an apply: the real apply, in a transaction that is rolled back.
#
# The result is therefore exact. A dry run holds the locks of an apply for as long as an apply does.

ChangeKind = Literal["added", "renamed", "changed", "returned", "retired"]
_REFUSED = (KeyForeign, RevisionTooLow, PruneRefused)


@dataclass(frozen=True, slots=True)
class Change:
    """Effect of an apply on one schedule.

    Attributes:
        key: the schedule's key.
        kind: the effect; ``retired`` is that of a prune, once the key was absent long enough.
        edits: a few words per changed field.
        moved: starts of the coming days that appear and vanish.
        fires: windows that would start at once, and would not without the apply.
        was: the former key of a renamed schedule.
        likely_was: the key of an absent schedule that is the same but for its key.
    """

    key: str
    kind: ChangeKind
    edits: tuple[str, ...] = ()
    moved: Moved = field(default_factory=Moved)
    fires: tuple[datetime, ...] = ()
    was: str | None = None
    likely_was: str | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """Effect of applying a file.

    Attributes:
        project: the file's project.
        now: the ledger's clock.
        last: the file that was applied last, if any.
        same: whether the file is that one, unchanged.
        changes: in the file's order; retired keys come last.
        unchanged: keys that stay as they are.
        absent: keys that the file lacks.
        foreign: keys that the project may not declare, with their owners.
        refused: why the file would not be applied; ``changes`` is empty then.
        drift: schedules whose state differs from what the file alone would produce.
        resumed: keys that are ``paused`` in the file, and were resumed.
        refused_keys: keys that would not be applied; see ``edits.refused``.
        misnamed: why, of those whose former key is the reason.
        in_vain: what is to be said of a ``was`` that changes nothing, by key.
        unknown: what is known of each workflow that no worker can run, by key, refused or not.
        queues: changes to the step queues, a sentence each.
        hooks: changes to the webhooks, the same.
        left_behind: see ``ApplyReport``.
        retention: how long Temporal keeps closed runs; None if no worker has read it yet.
        forgetful: keys whose ``catchUp.window`` is longer than that.
    """

    project: str
    now: datetime
    last: ProjectRow | None = None
    same: bool = False
    changes: tuple[Change, ...] = ()
    unchanged: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    foreign: Mapping[str, str] = field(default_factory=dict)
    refused: EngineError | None = None
    drift: tuple[DriftRow, ...] = ()
    resumed: tuple[str, ...] = ()
    refused_keys: tuple[str, ...] = ()
    misnamed: Mapping[str, str] = field(default_factory=dict)
    in_vain: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()
    retention: timedelta | None = None
    forgetful: tuple[str, ...] = ()

    @property
    def until(self) -> datetime:
        """End of the period in which starts are compared."""
        return self.now + AHEAD

    @property
    def fires(self) -> int:
        """Number of windows that would start at once because of the apply."""
        return sum(len(change.fires) for change in self.changes)


class _TakenBackError(Exception):
    """Error that rolls the transaction of a dry run back."""


async def dry_run(
    ledger: Ledger,
    file: ScheduleFile,
    *,
    by: str,
    prune: bool = False,
    force: bool = False,
    take_from: Renamed | None = None,
    sealing: Sealing | None = None,
) -> DryRun:
    """Return what ``apply`` would change, without changing anything.

    Args:
        ledger: the ledger to compare with.
        file: the file.
        by: the actor.
        prune: include what ``retire_absent`` would retire afterwards.
        force: as if the apply were forced.
        take_from: see ``apply``.
        sealing: see ``apply``.

    Raises:
        InputsSealed: the project's inputs are sealed, and there is no codec here.
        DefinitionUnreadable: a key that changes was written by a newer version.
    """
    sealing = (sealing or Sealing(ledger)).for_dry_run()
    file = await sealing.file(file)
    await prepare(file)
    suspect_until = await _suspect_until(ledger, file)
    found: list[DryRun] = []
    with suppress(_TakenBackError):
        async with ledger.transaction(long=True) as transaction:
            stage = _DryRunTransaction(
                transaction, file, by=by, suspect_until=suspect_until, sealing=sealing
            )
            played = await stage.play(prune=prune, force=force, take_from=take_from)
            kept = await transaction.retention()
            found.append(replace(played, retention=kept, forgetful=tuple(_forgetful(file, kept))))
            raise _TakenBackError
    return found[0]


def _resumed(file: ScheduleFile, compared: Diff, drift: Iterable[DriftRow]) -> tuple[str, ...]:
    """Return the keys that the file declares as paused, and that an operator has resumed."""
    held = {row.key for row in drift if row.pause}
    known = {*compared.unchanged, *compared.changed}
    return tuple(s.key for s in file.schedules if s.paused and s.key in known and s.key not in held)


def _otherwise(rows: Iterable[DriftRow], file: ScheduleFile) -> Iterator[DriftRow]:
    """Yield the drift from the file; an open-ended pause that the file declares is none."""
    declared = {schedule.key for schedule in file.schedules if schedule.paused}
    for row in rows:
        if row.key not in declared or row.pause is None or row.pause.until:
            yield row
        elif row.skipped or row.origin == "api":
            yield replace(row, pause=None)


def _forgetful(file: ScheduleFile, retention: timedelta | None) -> Iterator[str]:
    """Yield the keys that catch up windows older than Temporal keeps runs."""
    for schedule in file.schedules:
        policy = schedule.catch_up
        if retention is not None and policy.policy != "none" and policy.window > retention:
            yield schedule.key


class _DryRunTransaction(ApplyTransaction):
    """One dry run, inside its transaction."""

    async def play(self, *, prune: bool, force: bool, take_from: Renamed | None) -> DryRun:
        transaction, file = self._transaction, self._file
        last = await transaction.lock_project(file.project)
        stay = await take(transaction, file, take_from)
        compared, heads = await self._compared()
        same = last is not None and last.applied == file.digest and not force  # nothing to write
        compared = compared.of_the_same(file.schedules) if same else compared
        leaving = compared.absent if prune else ()
        drift = await transaction.drift(file.project)
        refused: EngineError | None = None
        changes, report = list[Change](), ApplyReport()
        queues, hooks = tuple[str, ...](), tuple[str, ...]()
        now = await transaction.now()
        try:
            if not force:
                self._require_allowed(last, leaving)
            if not same:
                queues, hooks = await self._other_edits()
            changes, report = await self._changes(compared, leaving, heads)
        except _REFUSED as error:
            refused = error
        return DryRun(
            project=file.project,
            now=now,
            last=last,
            same=same,
            changes=tuple(changes),
            unchanged=compared.unchanged,
            absent=compared.absent,
            foreign={key: heads[key].owner for key in compared.foreign},
            refused=refused,
            drift=tuple(_otherwise(drift, file)),
            resumed=_resumed(file, compared, drift),
            refused_keys=tuple(report.refused),
            misnamed=report.misnamed,
            in_vain=compared.in_vain,
            unknown=report.unknown,
            queues=queues,
            hooks=hooks,
            left_behind=stay,
        )

    def _require_allowed(self, last: ProjectRow | None, leaving: Sequence[str]) -> None:
        require_newer(self._file, last)
        require_half(self._file, leaving)

    async def _other_edits(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the edits of queues and of hooks."""
        queues = queue_edits(self._file, await self._transaction.queues())
        return queues, hook_edits(self._file, await self._transaction.hooks())

    async def _changes(
        self, compared: Diff, leaving: Sequence[str], heads: Mapping[str, Head]
    ) -> tuple[list[Change], ApplyReport]:
        transaction, file = self._transaction, self._file
        edited = [*compared.changed, *compared.returned]
        await self._lock(compared)
        before = await self._states([*edited, *leaving, *compared.renamed.values()])
        report, self._ahead = ApplyReport(), [*edited, *compared.renamed.values()]
        if compared.written or compared.foreign or compared.unfit:
            report = await self.write()
        now = await transaction.now()
        kinds: dict[str, ChangeKind] = dict.fromkeys(report.added, "added")
        kinds |= dict.fromkeys(report.renamed, "renamed")
        kinds |= dict.fromkeys(report.changed, "changed")
        kinds |= dict.fromkeys(report.returned, "returned")
        after = await self._states([*kinds])
        likely = likely_renames(compared, file.schedules, heads)
        keys = [schedule.key for schedule in file.schedules if schedule.key in kinds]
        changes = []
        for number, key in enumerate([*keys, *leaving]):
            if number % 20 == 0:
                await asyncio.sleep(0)
            was = report.renamed.get(key)
            old, new = before.get(was or key), after.get(key)
            moved = outlook(_view(old, now), _view(new, now), now + AHEAD)
            fires = tuple(sorted(_started(old, new, now) - _owed(old, now)))
            kind = kinds.get(key, "retired")
            edits = report.edits.get(key, ())
            changes.append(Change(key, kind, edits, moved, fires, was, likely.get(key)))
        return changes, report

    async def _states(self, keys: Sequence[str]) -> dict[str, ScheduleState]:
        found: dict[str, ScheduleState] = {}
        for part in chunks(keys):
            states = await self._transaction.read(part, all_open=True)
            found |= {state.key: state for state in states}
            await asyncio.sleep(0)
        return found


def _owed(state: ScheduleState | None, now: datetime) -> set[datetime]:
    """Return the windows that start at once under the present definition."""
    if state is None:
        return set()
    decided = decided_to_the_end(state, now).decisions
    return {each.window.fire_time for each in decided if each.may_start}


def _started(old: ScheduleState | None, new: ScheduleState | None, now: datetime) -> set[datetime]:
    """Return the windows that the apply wrote as fires, and those that it makes owed."""
    if new is None:
        return _owed(old, now)
    waited = {fire.fire_id for fire in old.open_fires} if old else set()
    written = {fire.fire_time for fire in new.open_fires if fire.fire_id not in waited}
    return written | _owed(new, now)


def _view(state: ScheduleState | None, now: datetime) -> View | None:
    """Return the schedule's starts from now on; None if it is retired, disabled or paused."""
    if state is None or state.hold in {"retired", "disabled"}:
        return None
    after = now
    if state.pause is not None:
        if state.pause.until is None:
            return None
        after = max(now, state.pause.until - TICK)
    if (shadow_end := state.schedule.shadow_end) is not None:
        after = max(after, shadow_end - TICK)
    skipped = frozenset(at for at, ran in state.known.items() if at > now and not ran)
    room = state.room
    if room:
        room = max(room - len(_owed(state, now)), 0)
    return View(state.schedule, after, skipped, state.schedule.last_start(after, room, but=skipped))
