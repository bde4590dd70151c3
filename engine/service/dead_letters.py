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
# Dead letters: to look at what ended badly, to run it again, or to let it rest.

_AT_ONCE = 500
"""Letters of one transaction."""


async def letters(ledger: Ledger, *, key: str | None = None, limit: int = 50) -> list[DeadLetter]:
    """Return what ended badly and nobody has dealt with, newest fire time first."""
    async with ledger.transaction() as transaction:
        return await transaction.letters(key, limit=limit)


async def letters_of(ledger: Ledger, name: str, bucket: int | None = None) -> list[DeadLetter]:
    """Return the letter of a run id, or those of a window by its key and bucket.

    Raises:
        LetterNotFound: there is none.
        ScheduleNotFound: nor is there such a schedule.
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
    if ":" in name:  # of a run: no key has one
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
    """Run a window again that ended badly; the rerun deals with its letters.

    Without ``own_input`` it gets what the run that died was given.

    Raises:
        LetterNotFound: there is none, or no window stands behind it.
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
    """Let the letter of a run id rest, or all those of one window; returns them.

    Raises:
        LetterNotFound: there is none.
    """
    return await _drop(ledger, await letters_of(ledger, name, bucket), by=by, reason=reason)


async def drop_all(
    ledger: Ledger, *, by: str, key: str | None = None, reason: str | None = None
) -> int:
    """Let every letter rest, of one schedule or of all; returns how many there were."""
    dropped = 0
    while found := await letters(ledger, key=key, limit=_AT_ONCE):
        dropped += len(await _drop(ledger, found, by=by, reason=reason))
    return dropped


async def _drop(
    ledger: Ledger, found: Sequence[DeadLetter], *, by: str, reason: str | None
) -> list[DeadLetter]:
    """Those that somebody has dealt with meanwhile are left out."""
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
# The verbs of dead letters.


class DeadLetters(ReadOperations):
    """Operations on dead letters: list, rerun, discard."""

    async def dead_letters(self, *, key: str | None = None, limit: int = 50) -> list[DeadLetter]:
        """Return what ended badly and nobody has dealt with, newest fire time first."""
        return await letters(self._ledger, key=key, limit=limit)

    async def dead_letters_of(self, name: str, bucket: int | None = None) -> list[DeadLetter]:
        """Return the letter of a run id, or those of a window; see ``letters.letters_of``."""
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
        """Run a window again that ended badly; see ``letters.rerun_letter``."""
        async with self._near():
            return await rerun_letter(
                self._ledger, name, bucket, by=self._actor, reason=reason, overlap=overlap,
                own_input=own_input,
            )  # fmt: skip

    async def drop_dead(
        self, name: str, bucket: int | None = None, *, reason: str | None = None
    ) -> list[DeadLetter]:
        """Let the letter of a run id rest, or those of a window; see ``letters.drop``."""
        async with self._naming():
            return await drop(self._ledger, name, bucket, by=self._actor, reason=reason)

    async def drop_all_dead(self, *, key: str | None = None, reason: str | None = None) -> int:
        """Let every letter rest, of one schedule or of all; returns how many there were."""
        return await drop_all(self._ledger, by=self._actor, key=key, reason=reason)
