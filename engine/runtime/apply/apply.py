"""Application of a schedule file to a ledger: idempotent, in one transaction (rule L3).

Every edit takes the schedule's row lock, then reads the clock, decides the windows up to that
moment under the old definition, and only then writes the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from engine.errors import LedgerRequired, PruneRefused, RevisionTooLow
from engine.ledger import Ledger, Transaction
from engine.ledger.records import ProjectRow
from engine.runtime.apply.edits import (
    ApplyReport,
    ApplyTransaction,
    OwesManyError,
    PruneReport,
    parts,
    readable,
    take,
)
from engine.runtime.planning import decide_ahead, decided_to_the_end, end
from engine.schedules import ScheduleFile
from engine.schedules.diff import diff
from engine.schedules.units import first_of

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
    take_from: str | None = None,
    last: str | None = None,
) -> ApplyReport:
    """Make the file's schedules the newest definitions of its project. Never retires a key.

    Args:
        ledger: the ledger to write to.
        file: the file to apply.
        by: the actor that the ledger records.
        force: skip the checks of the revision and of the number of absent keys.
        prune: ``retire_absent`` will follow, so refuse here what it would refuse.
        take_from: the former name of a renamed project; the keys that the file declares move.
        last: the project's current ``applied_digest``; read from the ledger if omitted.

    Raises:
        KeyForeign: another project owns a key of the file; nothing is applied then.
        RevisionTooLow: a file with a higher ``revision`` was applied, unless forced.
        PruneRefused: ``prune`` would retire more than half of the project, unless forced.
        LedgerRequired: the file needs something that a stateless replica cannot do.
    """
    if not ledger.remembers:
        require_no_memory(file)
    if not (force or prune or take_from):
        if last is None:
            last = await applied_digest(ledger, file.project)
        if last == file.digest:
            return _unchanged(file)
    await prepare(file)
    ahead: list[str] = []
    report = None
    while report is None:
        try:
            report = await _apply(
                ledger, file, by=by, force=force, prune=prune, take_from=take_from, ahead=ahead
            )
        except OwesManyError as error:
            for key in error.keys:
                await decide_ahead(ledger, key)
            ahead += error.keys
    if report.changed or report.returned:
        await ledger.wake()  # other schedules may have waited for these decisions
    return report


async def _apply(
    ledger: Ledger,
    file: ScheduleFile,
    *,
    by: str,
    force: bool,
    prune: bool,
    take_from: str | None,
    ahead: Sequence[str],
) -> ApplyReport:
    async with ledger.transaction(long=True) as transaction:
        head = await transaction.lock_project(file.project)
        if take_from:
            await take(transaction, file, take_from)
        if prune and not force:
            # Before any write or wait, so that a refused apply changes nothing.
            heads = await transaction.heads(file.project, ())
            require_half(file, diff(file.project, file.schedules, heads).absent)
        if head and head.applied == file.digest and not force:
            return _unchanged(file)
        if not force:
            require_newer(file, head)
        edit = ApplyTransaction(
            transaction, file, by=by, look_back=not ledger.remembers, ahead=ahead
        )
        return await edit.write()


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
) -> PruneReport:
    """Retire the project's keys that the unchanged file has lacked for ``absent_for``.

    Nothing is retired if a different file has been applied meanwhile.

    Raises:
        PruneRefused: the file lacks more than half of the project, unless forced.
    """
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
            await transaction.save_project(file, by=by, refused=last.refused)
    if ripe:
        await ledger.wake()  # other schedules must not wait for retired ones
    return PruneReport(tuple(ripe), tuple(sorted(set(compared.absent) - set(ripe))))


async def _retire(transaction: Transaction, keys: Sequence[str], now: datetime) -> None:
    """Decide what these keys owe until now, and retire them."""
    for part in parts(keys):
        states = await readable(transaction, part)
        await end(transaction, states, lambda each: decided_to_the_end(each, now, then="retired"))
        await transaction.retire(part, now)


def require_no_memory(file: ScheduleFile) -> None:
    """Refuse rules that a stateless replica cannot keep because it does not see others' runs.

    Raises:
        LedgerRequired: lists every such rule in the file.
    """
    schedules = file.schedules
    limited = [each.key for each in schedules if "max_concurrent_runs" in each.model_fields_set]
    overlap = [
        each.key
        for each in schedules
        # maxConcurrentRuns implies an overlap policy, written or not.
        if each.overlap != "allow" and "max_concurrent_runs" not in each.model_fields_set
    ]
    follows = [each.key for each in schedules if each.follows]
    wanted = [
        (f"{what} of {first_of(names, _NAMED)} needs a ledger", cure)
        for what, names, cure in (
            ("the limit", list(file.queues), "remove queues"),
            ("maxConcurrentRuns", limited, "remove maxConcurrentRuns and overlap"),
            ("overlap", overlap, "write overlap: allow"),
            ("after or needs", follows, "remove after and needs"),
        )
        if names
    ]
    if wanted:
        needs, cures = zip(*wanted, strict=True)
        cure = f"set SCHED_DATABASE_URL, or {', '.join(cures)}"
        raise LedgerRequired("; ".join(needs), cure=cure)


def require_newer(file: ScheduleFile, last: ProjectRow | None) -> None:
    """Refuse a file with a lower revision than the one applied last.

    Raises:
        RevisionTooLow: the file is older.
    """
    newest = last.revision if last else None
    if newest is not None and file.revision is not None and file.revision < newest:
        raise RevisionTooLow(
            f"{file.name} has revision {file.revision}, revision {newest} was applied before",
            cure="apply the newer file, or force this one",
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
        " than half, so none of them is retired, and they go on firing",
        cure=f"put them back, or retire them with `sched apply {file.name} --prune --force`",
    )
