"""Operations on dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.errors import EngineError, LetterNotFound, ScheduleNotFound
from engine.ledger import Ledger
from engine.ledger.fires import OF_A_WINDOW, DeadLetter
from engine.ledger.records import Action
from engine.schedules.policies import Overlap
from engine.service.base import ReadOperations
from engine.service.runs import Requested, rerun

# --- operations ---
# Functions that list, rerun and drop dead letters: records of runs that ended badly.

_AT_ONCE = 500
"""Letters dropped in one transaction."""


async def letters(ledger: Ledger, *, key: str | None = None, limit: int = 50) -> list[DeadLetter]:
    """Return the unresolved dead letters, newest fire time first."""
    async with ledger.transaction() as transaction:
        return await transaction.letters(key, limit=limit)


async def letters_of(ledger: Ledger, name: str, bucket: int | None = None) -> list[DeadLetter]:
    """Return the letter of a run id, or the letters of a window by its key and bucket.

    Raises:
        LetterNotFound: there is no such letter.
        ScheduleNotFound: there is no such letter and no such schedule.
    """
    async with ledger.transaction() as transaction:
        if bucket is None:
            found = await transaction.letters(workflow_id=name)
        else:
            found = await transaction.letters(name, bucket=bucket)
    if not found:
        raise await _none(ledger, name, bucket)
    return found


async def _none(ledger: Ledger, name: str, bucket: int | None) -> EngineError:
    if ":" in name:  # a run id: keys have no colon
        return LetterNotFound(
            f"there is no dead letter of {name}", cure="`sched dead list` shows every one"
        )
    if not await ledger.schedules(key=name):
        return ScheduleNotFound(name)
    if bucket is None:
        return LetterNotFound(
            f"{name} is the key of a schedule, and no letter",
            cure=f"name a window too, `{name} BUCKET`; `sched dead list {name}` shows which",
        )
    return LetterNotFound(
        f"there is no dead letter of window {bucket} of {name}",
        cure=f"`sched dead list {name}` shows every one, `sched log {name}` those dealt with",
    )


async def rerun_letter(
    ledger: Ledger,
    name: str,
    bucket: int | None = None,
    *,
    by: str,
    reason: str | None = None,
    overlap: Overlap | None = None,
    own_input: tuple[Any, ...] = (),
) -> Requested:
    """Rerun a window that ended badly and resolve its letters.

    Without ``own_input`` it gets the input of the rerun that failed, or else the schedule's input.

    Raises:
        LetterNotFound: there is no such letter, or it does not belong to a single window.
    """
    found = await letters_of(ledger, name, bucket)
    letter = next((each for each in found if each.kind in OF_A_WINDOW), None)
    if letter is None:
        another = (
            "reset its run in Temporal to run it again"
            if found[0].kind == "handler"
            else "`sched trigger` starts another run"
        )
        raise LetterNotFound(
            f"no window stands behind {found[0].workflow_id}",
            cure=f"{another}; `sched dead drop` lets it rest",
        )
    if letter.windows > 1:
        span = (letter.fire_time, letter.last_fire_time)
        first, last = (f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in span)
        raise LetterNotFound(
            f"{letter.windows} windows were rejected together",
            cure=f"start them with `sched backfill {letter.key} --from {first} --to {last}`",
        )
    given = own_input or (letter.arguments if letter.kind == "rerun" else ())
    return await rerun(
        ledger, letter.key, letter.bucket, by=by, reason=reason, series=letter.series,
        overlap=overlap, own_input=given, letter=letter.workflow_id,
    )  # fmt: skip


async def drop(
    ledger: Ledger, name: str, bucket: int | None = None, *, by: str, reason: str | None = None
) -> list[DeadLetter]:
    """Drop the letter of a run id, or all letters of one window, and return them.

    Raises:
        LetterNotFound: there is no such letter.
    """
    return await _drop(ledger, await letters_of(ledger, name, bucket), by=by, reason=reason)


async def drop_all(
    ledger: Ledger, *, by: str, key: str | None = None, reason: str | None = None
) -> int:
    """Drop every letter of one schedule or of all; return their number."""
    dropped = 0
    while found := await letters(ledger, key=key, limit=_AT_ONCE):
        dropped += len(await _drop(ledger, found, by=by, reason=reason))
    return dropped


async def _drop(
    ledger: Ledger, found: Sequence[DeadLetter], *, by: str, reason: str | None
) -> list[DeadLetter]:
    """Drop letters and return them, without those that were resolved concurrently."""
    async with ledger.transaction(long=True) as transaction:
        await transaction.lock(sorted({letter.key for letter in found}))
        dealt = await transaction.deal([letter.workflow_id for letter in found])
        dropped = [letter for letter in found if letter.workflow_id in dealt]
        actions = [
            Action(each.project, each.key, "drop", reason, each.workflow_id,
                   before={"status": each.status, "error": each.error or each.reason})
            for each in dropped
        ]  # fmt: skip
        await transaction.act(actions, by=by)
    return dropped


# --- service methods ---


class DeadLetters(ReadOperations):
    """Operations on dead letters: list, rerun, discard."""

    async def dead_letters(self, *, key: str | None = None, limit: int = 50) -> list[DeadLetter]:
        """Return the unresolved dead letters, newest fire time first."""
        return await letters(self._ledger, key=key, limit=limit)

    async def dead_letters_of(self, name: str, bucket: int | None = None) -> list[DeadLetter]:
        """Return the letter of a run id, or the letters of a window; see ``letters_of``."""
        async with self._naming():
            return await letters_of(self._ledger, name, bucket)

    async def rerun_dead(
        self,
        name: str,
        bucket: int | None = None,
        *,
        reason: str | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
    ) -> Requested:
        """Rerun a window that ended badly; see ``rerun_letter``."""
        async with self._near():
            return await rerun_letter(
                self._ledger, name, bucket, by=self._actor, reason=reason, overlap=overlap,
                own_input=own_input,
            )  # fmt: skip

    async def drop_dead(
        self, name: str, bucket: int | None = None, *, reason: str | None = None
    ) -> list[DeadLetter]:
        """Drop the letter of a run id, or the letters of a window; see ``drop``."""
        async with self._naming():
            return await drop(self._ledger, name, bucket, by=self._actor, reason=reason)

    async def drop_all_dead(self, *, key: str | None = None, reason: str | None = None) -> int:
        """Drop every letter of one schedule or of all; return their number."""
        return await drop_all(self._ledger, by=self._actor, key=key, reason=reason)
