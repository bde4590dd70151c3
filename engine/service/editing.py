"""Edits of schedules that applications have declared: any field of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.errors import KeyInUse, ScheduleError, ScheduleNotFound
from engine.ledger import ScheduleRow, Start
from engine.runtime.apply.edits import rename
from engine.runtime.schedule_lock import Locked, decide_ahead
from engine.schedules import FIELDS, KINDS, SEALED_INPUT, WHEN, Schedule
from engine.schedules.diff import unfit_key
from engine.service.base import checked_project, require_version
from engine.service.one_shots import (
    ApplicationSchedules,
    in_our_words,
    require_fitting_children,
    require_fitting_parents,
    require_future,
    require_owned_by_application,
)

_NO_EDIT: Final = ("key", "was", "paused", "expect", "after", "needs")
"""Fields that an edit cannot name."""


class ScheduleEdits(ApplicationSchedules):
    """Operations that edit schedules of applications."""

    async def edit(
        self,
        key: str,
        changes: Mapping[str, Any],
        *,
        version: int | None = None,
        reason: str | None = None,
    ) -> ScheduleRow:
        """Change some fields of an application's schedule; everything else stays.

        Windows that opened before are decided as before. An edit that changes nothing makes no
        new version.

        Args:
            key: the schedule's key.
            changes: new values, by the names of fields in a file, or ``maxRetries`` and
                ``timeoutSeconds``; None is the default. One of ``at``, ``every``, ``everyMs`` and
                ``cron`` replaces the one before. ``project`` has the workers of another project
                start what comes due, and finish what has not ended.
            version: the definition's version that the caller has read; None edits any.
            reason: the reason, for the audit log.

        Raises:
            ScheduleNotFound: there is no schedule with this key.
            OwnedByFile: a file declares it.
            NotCancellable: it was cancelled or retired.
            VersionOutdated: it was edited after ``version``.
            ScheduleError: a field is invalid, or cannot be edited.
            MomentInPast: it would never fire again.
        """
        _require_editable(changes)
        changes, given = await self._apart(key, in_our_words(changes))
        to = checked_project(changes.pop("project")) if "project" in changes else None
        await decide_ahead(self._ledger, key)
        children = await self.children(key)
        async with self._locked(key, retired=True) as held:
            before = held.state
            require_owned_by_application(before)
            require_version(held, version)
            changed = _edited(before.schedule, changes, given)
            to = before.project if to is None else to
            moves = to != before.project
            if not changes.keys().isdisjoint(WHEN):
                require_future(changed, held.now)
                project, transaction = before.project, held.transaction
                await require_fitting_parents(transaction, changed, project)
                await require_fitting_children(transaction, changed, project, children)
            is_new = changed.digest != before.schedule.digest
            if is_new:
                await self._redefine(held, changed)
            if moves:
                _require_alone(changed, children)
                await held.transaction.move_to_project([key], before.project, to)
            if is_new or moves:
                was, now = ({"project": each} if moves else {} for each in (before.project, to))
                await held.act(
                    "edit",
                    reason=reason,
                    before={**before.schedule.shown, **was},
                    after={**changed.shown, **now},
                )
        if moves:
            await self._ledger.wake()  # its new workers have not looked for it
        return await self.schedule(key)

    async def rename(
        self, key: str, to: str, *, version: int | None = None, reason: str | None = None
    ) -> ScheduleRow:
        """Give an application's schedule another key; everything else stays.

        Its windows up to now belong to the former key, which ends, and later ones to the new key.

        Args:
            key: the key that it has.
            to: the key that it gets; it may have had it before.
            version: the definition's version that the caller has read; None renames any.
            reason: the reason, for the audit log.

        Raises:
            ScheduleNotFound: there is no schedule with this key.
            ScheduleRenamed: it has another key now.
            OwnedByFile: a file declares it.
            NotCancellable: it was cancelled or retired.
            VersionOutdated: it was edited after ``version``.
            ScheduleError: the new key is no key, or a backfill is being laid.
            KeyInUse: it is, or was, another schedule's.
        """
        Schedule.from_json({"key": to, "workflow": "noop", "every": "1m"})  # is it a key?
        async with self._waking_others(), self._ledger.transaction(long=True) as transaction:
            await transaction.lock([to, key, *await transaction.keys_of(key)])
            if not (states := await transaction.read([key])):
                raise ScheduleNotFound(key)
            held = Locked(transaction, states[0], await transaction.now(), self._actor)
            require_owned_by_application(held.state, ended="cancelled")
            require_version(held, version)
            heads = await transaction.heads("", [key, to])  # "" is no project: only the keys'
            if why := unfit_key(to, key, heads):
                raise KeyInUse(why, hint="choose another key")
            if await transaction.backfills(key, laying=True):
                raise ScheduleError(
                    f"a backfill of {key} is being laid",
                    hint=f"wait for it, or end it with `sched cancel {key}`",
                )
            await rename(transaction, to, key, held.now, by=self._actor, why=reason)
        return await self.schedule(to)

    async def _apart(
        self, key: str, changes: dict[str, Any]
    ) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Return the changes without an input, and the input as the ledger stores it."""
        if changes.get("input") is None:
            return changes, ()
        rest = {name: value for name, value in changes.items() if name != "input"}
        value = Start.checked_input(changes["input"])
        rows = await self._ledger.schedules(key=key)
        # Sealed before the lock: a codec may ask a server for its keys.
        return rest, tuple(await self._sealing.seal(rows[0].project, [value]) if rows else [value])


def _require_alone(schedule: Schedule, children: Sequence[str]) -> None:
    """Check that nothing binds a schedule to others of its project.

    Raises:
        ScheduleError: it waits for windows of others, or they for its.
    """
    if others := [*(rule.parent for rule in schedule.follows), *children]:
        raise ScheduleError(
            f"{schedule.key} cannot leave its project: `after` or `needs` bind it to"
            f" {', '.join(sorted(others))}",
            hint="declare it without them in the other project",
        )


def _require_editable(changes: Mapping[str, Any]) -> None:
    wrong = next((name for name in _NO_EDIT if name in changes), None)
    if wrong is not None:
        raise ScheduleError(f"{wrong} cannot be edited", hint="leave it out")


def _edited(schedule: Schedule, changes: Mapping[str, Any], given: tuple[Any, ...]) -> Schedule:
    kept = dict(schedule.to_json())
    if not changes.keys().isdisjoint(kind for kind in KINDS if changes.get(kind) is not None):
        kept = {name: value for name, value in kept.items() if name not in KINDS}
    if given or "input" in changes:
        kept.pop("input", None)
        kept.pop(SEALED_INPUT, None)
    # A null is the default of a field, and what is no field is refused with it too.
    merged = {**kept, **changes}
    edited = Schedule.from_json(
        {n: value for n, value in merged.items() if value is not None or n not in FIELDS}
    )
    return edited.model_copy(update={"input": given[0]}) if given else edited
