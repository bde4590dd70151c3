"""Edits that one apply writes, and the definitions they lead to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from engine.errors import InputsSealed, KeyForeign, ScheduleRenamed, WorkflowUnknown
from engine.ledger import Action, NewDefinition, QueueRow, Serving, SkippedAhead, Subscription
from engine.runtime import workflow_workers
from engine.runtime.apply.definitions import (
    first_definition,
    next_definition,
    read_all,
    renamed_definition,
)
from engine.runtime.schedule_lock import decided_to_the_end, owes_many, record_decided, still_valid
from engine.runtime.sealing import CODEC_HINT, Sealing
from engine.schedules import (
    STARTS,
    TICK,
    Reason,
    Schedule,
    ScheduleFile,
    Sealed,
    Window,
    escaped,
    first_of,
    iso_text,
    place_of_url,
)
from engine.schedules.diff import Diff, Head, diff, edits, with_seed
from engine.schedules.planner import Decision, Plan, ScheduleState, plan

if TYPE_CHECKING:
    from engine.ledger import Ledger, Transaction

# --- refused schedules ---
# Schedules whose workflow no worker has are not applied. Otherwise a misspelt name, or a version
# that is not deployed yet, would replace a working definition, and show only when its windows are
# rejected: docs/adr/0023-what-an-apply-refuses.md.

_GOES_ON = "its last good definition stays in effect"

Types = Mapping[tuple[str, str], str | None]
"""Temporal type by task queue and ``workflow:`` name; None if no worker announced one."""


async def refused(
    transaction: Transaction, schedules: Sequence[Schedule], compared: Diff, types: Types
) -> dict[str, str]:
    """Return the keys that are not applied, each with the reason.

    A new, changed or returning key is refused if it is enabled and its workflow was never
    announced although workers have served its task queue. Keys that ``after`` or ``needs`` links
    with it are refused too: half a chain would wait for the wrong windows.

    Args:
        transaction: used to read the announced types.
        schedules: all schedules of the file.
        compared: the file compared with the ledger.
        types: the Temporal types of the file's workflows.
    """
    written = {*compared.written}
    nameless = [each for each in schedules if each.key in written and _is_unknown(each, types)]
    if not nameless:
        return {}
    announced = await transaction.announced({each.task_queue for each in nameless})
    reasons = {
        each.key: workflow_workers.unresolved_workflow_hint(each, announced)
        for each in nameless
        if announced.get(each.task_queue)
    }
    for key, cause in linked(schedules, reasons).items():
        if key in written:
            reasons[key] = f"after or needs links it with {cause}, which is refused"
    return {
        key: f"refused: {reasons[key]}"
        + (f"; {_GOES_ON}" if key in {*compared.changed, *compared.renamed} else "")
        for key in (each.key for each in schedules)
        if key in reasons
    }


def _is_unknown(schedule: Schedule, types: Types) -> bool:
    if not schedule.lane or not schedule.enabled:
        return False
    return types[schedule.task_queue, schedule.workflow] is None


def linked(schedules: Iterable[Schedule], keys: Collection[str]) -> dict[str, str]:
    """Return other keys linked with one of these, directly or not, each with that one key."""
    links: dict[str, list[str]] = defaultdict(list)
    for schedule in schedules:
        for rule in schedule.follows:
            links[schedule.key].append(rule.parent)
            links[rule.parent].append(schedule.key)
    found = {key: key for key in keys}
    new = list(found)
    while new:
        key = new.pop()
        for other in links.get(key, ()):
            if other not in found:
                found[other] = found[key]
                new.append(other)
    return {key: cause for key, cause in found.items() if key not in keys}


# --- operator skips ---
# Windows that operators skipped ahead, when the definition changes. A skip applies to a moment: it
# stays while a window opens then, whatever its bucket is now. Otherwise it is dropped and reported.

Dropped = dict[str, tuple[str, ...]]
"""Moments of dropped skips, as text, by key."""


async def renew_skips(
    transaction: Transaction, lifted: Sequence[SkippedAhead], *, by: str
) -> Dropped:
    """Write lifted skips again under the new definitions.

    Args:
        transaction: the transaction that has written the new definitions.
        lifted: the skips under the old definitions.
        by: the actor.

    Returns:
        The skips that could not be kept.
    """
    if not lifted:
        return {}
    keys = sorted({skip.key for skip in lifted})
    states = {state.key: state for state in await transaction.read(keys)}
    dropped: dict[str, list[datetime]] = {}
    for skip in sorted(lifted, key=lambda each: each.fire_time):
        state = states[skip.key]
        if state.schedule.spec.previous(skip.fire_time) == skip.fire_time:
            decision = Decision(state.window(skip.fire_time), "skipped", skip.reason)
            await transaction.note_ahead(Plan(state, (decision,), state.cursor, None))
        else:
            dropped.setdefault(skip.key, []).append(skip.fire_time)
            await transaction.act([_forgotten(states, skip)], by=by)
    return {key: tuple(iso_text(moment) for moment in moments) for key, moments in dropped.items()}


def _forgotten(states: Mapping[str, ScheduleState], skip: SkippedAhead) -> Action:
    before = {"status": "skipped", "fireTime": skip.fire_time, "reason": skip.reason}
    reason = "edited: no window opens then any more"
    project = states[skip.key].project
    return Action(project, skip.key, "unskip", reason, skip.workflow_id, before=before)


# --- renames ---
# A schedule goes on under another key: docs/adr/0074-renamed-schedules.md.


async def rename(
    transaction: Transaction, key: str, was: str, now: datetime, *, by: str, why: str | None
) -> None:
    """Give a schedule another key; both keys are locked.

    Raises:
        DefinitionUnreadable: a newer version wrote its definition.
        KeyInUse: a schedule of the new key was created meanwhile.
    """
    (state,) = await read_all(transaction, [was])
    lifted = await transaction.lift_skips([was])
    new = renamed_definition(state, key, now)
    action = Action(state.project, was, "rename", why, after={"key": key})
    if await transaction.heads("", [key]):  # "" is no project: only the key's
        await transaction.define([new], by=by)
        await transaction.act([action], by=by)
    else:
        await transaction.create(new, action, by=by)
    await transaction.rename(was, key)
    await renew_skips(transaction, [replace(skip, key=key) for skip in lifted], by=by)


def _is_suspect(state: ScheduleState, now: datetime, suspect_until: datetime | None) -> bool:
    """Return whether undecided windows may have runs that the ledger has lost (rule L4)."""
    oldest = state.schedule.first_start(state.cursor + TICK, but=state.known)
    if suspect_until is None or oldest is None or state.retired_at is not None:
        return False
    return oldest <= min(now, suspect_until)


# --- queues ---
# Changes of a file to its project's step queues.


async def write_queues(transaction: Transaction, file: ScheduleFile, *, by: str) -> tuple[str, ...]:
    """Make the file's queues those of its project; return the changes, a sentence each.

    Raises:
        KeyForeign: another project has a queue of this name; nothing is written then.
    """
    rows = await transaction.queues()
    edits = queue_edits(file, rows)
    if edits:
        await transaction.declare_queues(file.project, file.queues, by=by)
    return edits


def queue_edits(file: ScheduleFile, rows: Mapping[str, QueueRow]) -> tuple[str, ...]:
    """Return the changes to the ledger's queues, a sentence each.

    Raises:
        KeyForeign: another project has a queue of this name.
    """
    foreign = [
        f"{name} (of {rows[name].project})"
        for name in file.queues
        if name in rows and rows[name].project != file.project
    ]
    if foreign:
        raise KeyForeign(
            f"{file.name} declares queues of others: {', '.join(foreign)}",
            hint="rename them; the name of a queue is, as a key, one project's in a namespace",
        )
    edits = []
    for name, queue in file.queues.items():
        row = rows.get(name)
        if row is None:
            edits.append(f"queue {name}: {queue}")
        elif row.dropped_at is not None:
            edits.append(f"queue {name} is back: {queue}")
        elif row.limits != queue:
            edits.append(f"queue {name}: {queue} (was {row.limits})")
    edits += [
        f"queue {name} is in no file any more; its limits continue to hold: {row.limits}"
        for name, row in rows.items()
        if row.project == file.project and row.dropped_at is None and name not in file.queues
    ]
    return tuple(edits)


# --- webhooks ---
# Changes of a file to its project's webhooks.


async def write_hooks(transaction: Transaction, file: ScheduleFile, *, by: str) -> tuple[str, ...]:
    """Make the file's hooks those of its project; return the changes, a sentence each."""
    edits = hook_edits(file, await transaction.hooks())
    if edits:
        await transaction.declare_hooks(file.project, file.hooks, origin="file", by=by)
    return edits


def hook_edits(file: ScheduleFile, rows: Sequence[Subscription]) -> tuple[str, ...]:
    """Return the changes to the ledger's hooks, a sentence each, without addresses or secrets."""
    there = {row.name: row for row in rows if row.project == file.project}
    edits, declared = [], set[str]()
    for hook in file.hooks:
        new = Subscription.of_hook(hook, file.project, "file")
        declared.add(new.name)
        row = there.get(new.name)
        if row is None:
            edits.append(f"hook {hook}")
        elif replace(row, position=0) != new:
            edits.append(f"hook {hook} (changed)")
    edits += [
        f"hook {place_of_url(row.url or '')} is in no file any more; it gets nothing from now on"
        for name, row in there.items()
        if row.origin == "file" and name not in declared
    ]
    return tuple(edits)


# --- schedules of older time rules ---
# Takeover of schedules that older time rules computed (docs/time.md).

_BATCH = 1000
_ROWS = 20
"""Maximum number of rows per schedule; ticks decide a schedule that owes more, as always."""


async def recompute_outdated(ledger: Ledger, serving: Serving) -> int:
    """Recompute schedules of this replica's lanes that older time rules computed; return how many.

    Decides what they owe by this replica's rules. As with an edit, sweepers start owed runs. A
    local time that has fired by the older rules does not fire again; see ``plan``.
    """
    recomputed, after = 0, ""
    while True:
        async with ledger.transaction(long=True) as transaction:
            keys = await transaction.lock_outdated(serving, after, _BATCH)
            now = await transaction.now()
            plans = []
            for state in await transaction.read(keys):
                try:
                    plans.append(plan(state, now, rows=_ROWS))
                except Exception as error:  # noqa: BLE001 - one bad schedule never stops the others
                    await transaction.back_off(state.key, f"{type(error).__name__}: {error}")
            # A step that gives up a fire which is in flight is left to a tick, by the same rules.
            plans = await still_valid(
                transaction, [each for each in plans if _is_recomputed(each, now)]
            )
            await transaction.record(plans)
        if not keys:
            return recomputed
        recomputed, after = recomputed + len(plans), keys[-1]


def _is_recomputed(planned: Plan, now: datetime) -> bool:
    """Return whether to record a plan: not part of a catch-up, and no start without a type."""
    is_due = planned.next_fire_at is not None and planned.next_fire_at <= now
    if is_due and len(planned.decisions) >= _ROWS:
        return False
    starts = any(each.may_start for each in planned.decisions)
    return planned.state.workflow_type is not None or not starts


# --- reports ---
# Results of applying a file and of pruning.


@dataclass(frozen=True, slots=True)
class ApplyReport:
    """Result of applying a file.

    Attributes:
        edits: for each changed key its differences from the ledger, a few words per field.
        refused: for each key that was not applied the reason; see ``refused``.
        misnamed: those of them of which the reason is a former key, their own or another one's.
        waiting: for each written definition whose workflow no worker can run what is known of it.
        renamed: the former key of each schedule that has another one now.
        in_vain: what is to be said of a ``was`` that changes nothing, by key.
        unskipped: for each key the skipped moments at which no window opens any more.
        queues: changes to the step queues, a sentence each.
        hooks: changes to the webhooks, the same.
        followed: for each key whose times changed the schedules of applications that follow it.
        left_behind: schedules of applications that stay in the project that was renamed.
        already_applied: whether nothing was written because this file was the last one applied.

    The others except ``project`` hold keys.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    in_vain: Mapping[str, str] = field(default_factory=dict)
    edits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    misnamed: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    unskipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    hooks: tuple[str, ...] = ()
    followed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    left_behind: tuple[str, ...] = ()
    project: str = "default"
    already_applied: bool = False

    def __str__(self) -> str:
        if self.already_applied:
            return f"project {self.project}: nothing changed since the last apply"
        named = ("added", "renamed", "changed", "returned", "unchanged", "refused")
        counts = [f"{len(getattr(self, name))} {name}" for name in named if getattr(self, name)]
        if self.absent:
            counts.append(f"{len(self.absent)} not in the file and still firing")
        return f"project {self.project}: {', '.join(counts)}"

    @property
    def refusals(self) -> tuple[str, ...]:
        """A sentence for each key that was not applied."""
        return tuple(f"{key}: {why}" for key, why in self.refused.items())

    @property
    def unknown(self) -> dict[str, str]:
        """Return what is known of each workflow that no worker can run, by key, refused or not."""
        nameless = {key: why for key, why in self.refused.items() if key not in self.misnamed}
        return {**nameless, **self.waiting}

    @property
    def remarks(self) -> list[str]:
        """Remarks on single keys, a sentence each."""
        return [
            *(f"{key}: its time had passed, recorded as expired" for key in self.expired),
            *(f"{ScheduleRenamed.code}: {key}: {why}" for key, why in self.misnamed.items()),
            *(f"{key}: {why}" for key, why in self.in_vain.items()),
            *(
                f"{key}: due windows were rejected: no worker has its previous workflow"
                for key in self.rejected
            ),
            *(f"{WorkflowUnknown.code}: {key}: {what}" for key, what in self.unknown.items()),
            *(
                f"{key}: no window opens at {', '.join(moments)} any more, so its skip is void"
                for key, moments in self.unskipped.items()
            ),
            *_in_vain(self.followed, "has other times"),
        ]


@dataclass(frozen=True, slots=True)
class PruneReport:
    """Result of pruning: retired keys, and keys not yet absent for long enough.

    ``followed`` holds for each retired key the schedules of applications that follow it.
    """

    retired: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    followed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def remarks(self) -> list[str]:
        """Remarks on single keys, a sentence each."""
        return _in_vain(self.followed, "is retired")


def _in_vain(followed: Mapping[str, tuple[str, ...]], what: str) -> list[str]:
    return [
        f"{key} {what}, and schedules of applications follow it: {first_of(children, _NAMED)};"
        " what they wait for in vain is skipped"
        for key, children in followed.items()
    ]


async def followers(ledger: Ledger, keys: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the schedules of applications that follow these keys, by key.

    A file is checked as a whole, but knows nothing of them.
    """
    found = {}
    for key in keys:
        rows = [
            each
            for child in await ledger.children(key)
            for each in await ledger.schedules(key=child)
        ]
        if children := tuple(row.key for row in rows if row.origin == "api"):
            found[key] = children
    return found


# --- edits ---
# The writes of one apply: first definitions, edits and returns, in one transaction (rule L3).

_PART = 100
_NAMED = 5


class OwesManyError(Exception):
    """Error for keys that owe more windows than the transaction of an edit should decide."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(keys)
        self.keys = keys


class ApplyTransaction:
    """One apply, inside its transaction; ``ahead`` holds keys whose windows were decided before.

    Windows up to ``suspect_until`` may have runs that the ledger has lost.

    Attributes:
        moved: the keys whose times have changed.
    """

    def __init__(
        self,
        transaction: Transaction,
        file: ScheduleFile,
        *,
        by: str,
        ahead: Collection[str] = (),
        suspect_until: datetime | None = None,
        sealing: Sealing,
    ) -> None:
        self._transaction, self._file, self._by = transaction, file, by
        self._ahead, self._sealing, self._suspect_until = ahead, sealing, suspect_until
        self._types: Mapping[tuple[str, str], str | None] = {}
        self._expired: list[str] = []
        self._rejected: list[str] = []
        self._edits: dict[str, tuple[str, ...]] = {}
        self._unknown: dict[str, str] = {}
        self._dropped: Dropped = {}
        self._refused: dict[str, str] = {}
        self._misnamed: dict[str, str] = {}
        self._kept: list[str] = []
        self.moved: list[str] = []

    async def write(self) -> ApplyReport:
        """Write the file. On an error nothing is written: the transaction rolls back.

        Raises:
            OwesManyError: keys owe too many windows; decide these ahead, then try again.
            KeyForeign: another project owns a key or a queue of the file.
            DefinitionUnreadable: a key that changes was written by a newer version.
        """
        transaction, file = self._transaction, self._file
        compared, heads = await self._compared()
        schedules = {each.key: with_seed(each, heads) for each in file.schedules}
        if compared.foreign:
            raise _foreign(file, {key: heads[key].owner for key in compared.foreign})
        queues = await write_queues(transaction, file, by=self._by)
        # Before the schedules: the first events of a hook are those of its own file.
        hooks = await write_hooks(transaction, file, by=self._by)
        wanted = [(each.task_queue, each.workflow) for each in file.schedules if not each.external]
        self._types = await transaction.resolve(wanted)
        self._misnamed = dict(compared.unfit)
        self._refused = await refused(transaction, file.schedules, compared, self._types)
        compared = compared.without(self._refused)
        edited = [*compared.changed, *compared.returned]
        await self._lock(compared)
        now = await transaction.now()
        for part in chunks(compared.added):
            await self._define([self._first(schedules[key], now) for key in part], {}, now)
        await self._rename(compared.renamed, schedules, now)
        compared = compared.without(self._kept)
        for part in chunks(edited):
            await self._edit(part, schedules, now)
        await self._note(compared)
        await transaction.mark_absent(file.project, compared.absent, now)
        self._refused |= self._misnamed
        await transaction.save_project(file, by=self._by, refused=self._refused)
        return self._report(compared, queues, hooks)

    def _report(
        self, compared: Diff, queues: tuple[str, ...], hooks: tuple[str, ...]
    ) -> ApplyReport:
        return ApplyReport(
            added=compared.added,
            changed=compared.changed,
            returned=compared.returned,
            unchanged=compared.unchanged,
            absent=compared.absent,
            expired=tuple(self._expired),
            rejected=tuple(self._rejected),
            renamed=compared.renamed,
            edits={
                key: found for key, found in self._edits.items() if key not in compared.returned
            },
            refused=self._refused,
            misnamed=self._misnamed,
            in_vain=compared.in_vain,
            waiting=self._unknown,
            unskipped=self._dropped,
            queues=queues,
            hooks=hooks,
            project=self._file.project,
        )

    async def _compared(self) -> tuple[Diff, dict[str, Head]]:
        """Compare the file with the ledger, the keys that its schedules had before included."""
        schedules = self._file.schedules
        former = [each.was for each in schedules if each.was]
        keys = [*(each.key for each in schedules), *former]
        heads = await self._transaction.heads(self._file.project, keys)
        return diff(self._file.project, schedules, heads), heads

    async def _lock(self, compared: Diff) -> None:
        """Lock what this apply writes at once, the rows of former keys too."""
        keys = [*compared.changed, *compared.returned, *compared.absent, *compared.renamed]
        for was in compared.renamed.values():
            keys += await self._transaction.keys_of(was)
        await self._transaction.lock_edited(self._file.project, keys)

    async def _rename(
        self, renamed: Mapping[str, str], schedules: Mapping[str, Schedule], now: datetime
    ) -> None:
        """Give locked schedules their new keys, after the other changes of their definitions.

        An edit decides what is owed without a look at the runs. If the commit of a rename was lost,
        their ids have the other key, so that the edit has to wait until they are looked up.
        """
        transaction, file = self._transaction, self._file
        for key, was in renamed.items():
            (state,) = await read_all(transaction, [was])
            seed = None if state.schedule.seed == was else state.schedule.seed
            new = schedules[key].model_copy(update={"key": was, "was": seed})
            if await transaction.backfills(was, laying=True):
                why = f"a backfill of {was} is being laid; wait for it, or `sched cancel {was}`"
                self._misnamed[key] = why
                self._kept.append(key)
                continue
            if state.retired_at is not None or state.schedule.digest != new.digest:
                if _is_suspect(state, now, self._suspect_until):
                    why = "its other changes wait until a worker has looked up what has run"
                    self._misnamed[key] = f"renamed; {why}; then apply the file again"
                else:
                    await self._edit([was], {was: new}, now)
                    self._edits[key] = self._edits.pop(was)
            name = escaped(file.name, one_line=True)
            await rename(transaction, key, was, now, by=self._by, why=name)

    async def _note(self, compared: Diff) -> None:
        """Record the apply for each key that it changes."""
        file = self._file
        name = escaped(file.name, one_line=True)
        why = name if file.revision is None else f"{name}, revision {file.revision}"
        for part in chunks(compared.written):
            edited = {key: self._edits.get(key) for key in part}
            actions = [
                Action(file.project, key, "apply", why, after={"edits": found} if found else None)
                for key, found in edited.items()
            ]
            await self._transaction.act(actions, by=self._by)

    async def _edit(
        self, keys: Sequence[str], schedules: Mapping[str, Schedule], now: datetime
    ) -> None:
        """Decide what these keys owe under their old definitions, and write the new ones."""
        states = await read_all(self._transaction, keys)
        self._require_codec(states)
        if behind := [s.key for s in states if s.key not in self._ahead and owes_many(s, now)]:
            raise OwesManyError(behind)
        owed = await record_decided(
            self._transaction, states, lambda state: _owed(state, schedules[state.key], now)
        )
        before = {state.key: state for state in states}
        for key in keys:
            self._edits[key] = await self._described(before[key].schedule, schedules[key])
            if before[key].schedule.declared_when != schedules[key].declared_when:
                self.moved.append(key)
        self._rejected += [
            planned.state.key
            for planned in owed
            if any(decision.verdict == "rejected" for decision in planned.decisions)
        ]
        new = [self._next(planned, schedules[planned.state.key], now) for planned in owed]
        lifted = await self._transaction.lift_skips(keys)
        await self._define(new, before, now)
        self._dropped |= await renew_skips(self._transaction, lifted, by=self._by)

    def _require_codec(self, states: Sequence[ScheduleState]) -> None:
        """Refuse to write over sealed inputs without the codec.

        Raises:
            InputsSealed: another project, whose key moved here, has sealed one of them.
        """
        if self._sealing.has_codec:
            return
        if sealed := [s.key for s in states if isinstance(s.schedule.input, Sealed)]:
            raise InputsSealed(
                f"the input of {', '.join(sealed)} is sealed",
                hint=CODEC_HINT,
            )

    async def _described(self, old: Schedule, new: Schedule) -> tuple[str, ...]:
        """Describe each changed field, also those of sealed inputs.

        The codec is asked for inputs that have changed alone, because others wait for the locks.
        """
        newly = isinstance(new.input, Sealed) and not isinstance(old.input, Sealed)
        if old.input == new.input:
            return edits(old, new)
        if self._sealing.is_same(self._file.project, old.input, new.input):
            old = old.model_copy(update={"input": new.input})
        else:
            old, new = await self._sealing.shown_in(old), await self._sealing.shown_in(new)
        return edits(old, new) or (("input is sealed now",) if newly else ())

    async def _define(
        self, new: list[NewDefinition], before: Mapping[str, ScheduleState], now: datetime
    ) -> None:
        await self._transaction.define(new, by=self._by)
        self._expired += await self._book_past_moments(new, before, now)
        self._unknown |= await self._waiting(new)
        await asyncio.sleep(0)  # let other tasks of the event loop run

    async def _waiting(self, new: Sequence[NewDefinition]) -> dict[str, str]:
        """Return what is known of each new definition's workflow that no worker can run."""
        waiting = [
            item.schedule for item in new if item.workflow_type is None and item.schedule.lane
        ]
        queues = {schedule.task_queue for schedule in waiting}
        announced = await self._transaction.announced(queues) if queues else {}
        return {
            schedule.key: workflow_workers.unresolved_workflow_hint(schedule, announced)
            for schedule in waiting
        }

    def _first(self, schedule: Schedule, now: datetime) -> NewDefinition:
        return first_definition(
            schedule,
            now,
            project=self._file.project,
            workflow_type=self._type(schedule),
        )

    def _next(self, owed: Plan, schedule: Schedule, now: datetime) -> NewDefinition:
        return next_definition(
            owed, schedule, now, project=self._file.project, workflow_type=self._type(schedule)
        )

    async def _book_past_moments(
        self,
        definitions: list[NewDefinition],
        before: Mapping[str, ScheduleState],
        now: datetime,
    ) -> tuple[str, ...]:
        """Record each ``at`` that had passed when it was declared as expired; it never runs."""
        past = {}
        for new in definitions:
            schedule = new.schedule
            moment = schedule.spec.previous(now) if schedule.kind == "at" else None
            if moment is None or moment > new.cursor:
                continue
            if not _decided(before.get(schedule.key), moment):
                past[schedule.key] = moment
        if not past:
            return ()
        plans = []
        for state in await self._transaction.read(list(past)):
            moment = past[state.key]
            window = Window(state.key, state.series, state.schedule.spec.bucket(moment), moment)
            reason = Reason("expired", "had passed when it was declared")
            decision = Decision(window, "expired", reason)
            plans.append(Plan(state, (decision,), state.cursor, None))
        await self._transaction.record(plans, strict=True)
        return tuple(past)

    def _type(self, schedule: Schedule) -> str | None:
        if schedule.external:
            return schedule.workflow
        return self._types[schedule.task_queue, schedule.workflow]


@dataclass(frozen=True, slots=True)
class Renamed:
    """The former name of a project, whose schedules move to its new one.

    Attributes:
        old: the former name.
        with_applications: whether those of applications move too, and not only what the file
            declares.
    """

    old: str
    with_applications: bool = False


async def take(
    transaction: Transaction, file: ScheduleFile, renamed: Renamed | None
) -> tuple[str, ...]:
    """Move schedules to the file's project; return those of applications that stay behind."""
    if renamed is None or renamed.old == file.project:
        return ()
    heads = await transaction.heads(renamed.old, ())
    theirs = {key: each.origin for key, each in heads.items() if not each.retired}
    declared = {key for schedule in file.schedules for key in (schedule.key, schedule.was)}
    keys = [key for key, origin in theirs.items() if origin == "file" and key in declared]
    others = sorted(
        key for key, origin in theirs.items() if origin == "api" and not key.startswith(STARTS)
    )
    if renamed.with_applications:
        keys, others = keys + others, []
    if keys:
        await transaction.lock_edited(renamed.old, sorted(keys))
        await transaction.move_to_project(sorted(keys), renamed.old, file.project)
    return tuple(others)


def _foreign(file: ScheduleFile, owners: Mapping[str, str]) -> KeyForeign:
    named = ", ".join(f"{key} (of {owner})" for key, owner in owners.items())
    hint = "rename them, or let their owners retire or cancel them"
    owner, *others = {*owners.values()}
    if not others and owner.startswith("project "):
        hint = (
            f"where the {owner} was renamed, let `sched apply --take-from"
            f" {owner.removeprefix('project ')}` move them: until then they start only where a"
            f" worker still serves it; else {hint}"
        )
    return KeyForeign(f"{file.name} declares keys of others: {named}", hint=hint)


def chunks(keys: Sequence[str]) -> Iterator[Sequence[str]]:
    """Divide keys into parts that occupy the event loop and the database for tens of ms each."""
    return (keys[first : first + _PART] for first in range(0, len(keys), _PART))


def _owed(state: ScheduleState, new: Schedule, now: datetime) -> Plan:
    """Decide everything the present definition still owes before ``new`` replaces it."""
    ended = state.hold == "disabled" and new.enabled
    on_resume = new.catch_up.after("deploy") if ended else None
    return decided_to_the_end(state, now, on_resume=on_resume)


def _decided(before: ScheduleState | None, moment: datetime) -> bool:
    """Return whether an earlier definition had the same moment and decided it."""
    if before is None or before.schedule.kind != "at":
        return False
    same = before.schedule.spec.previous(moment) == moment
    return same and (before.retired_at is None or before.cursor >= moment)
