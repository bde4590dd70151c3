"""Operations on dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from engine.errors import EngineError, LetterNotFound, ScheduleError, ScheduleNotFound
from engine.ledger import OF_A_WINDOW, Action, DeadLetter
from engine.schedules import Overlap, iso_text
from engine.service.operate import Requested
from engine.service.starts import Starting

MOST_LETTERS: Final = 10_000
"""The most dead letters that are counted."""
_AT_ONCE = 500
"""Letters dropped in one transaction."""


class DeadLetters(Starting):
    """Operations on dead letters: list, rerun, discard."""

    async def dead_letters(
        self,
        *,
        key: str | None = None,
        after: tuple[datetime, str] | None = None,
        limit: int = 50,
    ) -> list[DeadLetter]:
        """Return the unresolved dead letters, newest fire time first.

        ``after`` is the fire time and the run id of the last letter of the page before.
        """
        return [await self._with_input(each) for each in await self._stored(key, limit, after)]

    dead = dead_letters

    async def count_dead(self, key: str | None = None) -> int:
        """Return the number of unresolved dead letters, up to ``MOST_LETTERS``."""
        return await self._ledger.count_letters(key, most=MOST_LETTERS)

    async def _stored(
        self, key: str | None, limit: int, after: tuple[datetime, str] | None = None
    ) -> list[DeadLetter]:
        """Return letters as they are stored; see ``dead_letters``."""
        async with self._ledger.transaction() as transaction:
            return await transaction.dead_letters(key, after=after, limit=limit)

    async def _with_input(self, letter: DeadLetter) -> DeadLetter:
        """Return a letter with its input in plain, if that can be read here."""
        arguments = tuple([await self._sealing.shown(each) for each in letter.arguments])
        return replace(letter, arguments=arguments)

    async def dead_letters_of(
        self, name: str, bucket: int | None = None, *, at: datetime | None = None
    ) -> list[DeadLetter]:
        """Return the letter of a run id, or the letters of a window by its key and bucket or time.

        Raises:
            LetterNotFound: there is no such letter.
            ScheduleNotFound: there is no such letter and no such schedule.
        """
        found = await self._letters_of(name, bucket, at)
        return [await self._with_input(each) for each in found]

    async def _letters_of(
        self, name: str, bucket: int | None, at: datetime | None
    ) -> list[DeadLetter]:
        """Return letters as they are stored; see ``dead_letters_of``."""
        if at is not None:
            named = await self.window(name, bucket, at=at)
            bucket = named.fire.bucket if named.fire else named.bucket
        async with self._naming():
            async with self._ledger.transaction() as transaction:
                if bucket is None:
                    found = await transaction.dead_letters(workflow_id=name)
                else:
                    found = await transaction.dead_letters(name, bucket=bucket)
            if not found:
                raise await self._none(name, bucket)
        return found

    async def rerun_dead(
        self,
        name: str,
        bucket: int | None = None,
        *,
        at: datetime | None = None,
        reason: str | None = None,
        overlap: Overlap | None = None,
        own_input: tuple[Any, ...] = (),
    ) -> Requested:
        """Rerun a window, or a start by an application, that ended badly and resolve its letters.

        Without ``own_input`` a window gets the input of the rerun that failed, or else the
        schedule's; a start gets the input of the run that failed.

        Raises:
            LetterNotFound: there is no such letter, or it does not belong to a single window.
            InputInvalid: the workflow cannot take the argument; see ``check_inputs``.
            ScheduleError: ``overlap`` is given for a start, which has none.
            WorkflowUnknown: no worker has ever announced the workflow.
        """
        found = await self._letters_of(name, bucket, at)
        start = next((each for each in found if each.kind == "manual" and each.started), None)
        if start is not None:
            if overlap is not None:
                raise ScheduleError(
                    f"{start.workflow_id} belongs to no schedule, so no overlap applies to it",
                    hint="leave the overlap out",
                )
            return await self._rerun_start(start, own_input, reason)
        letter = next((each for each in found if each.kind in OF_A_WINDOW), None)
        if letter is None:
            another = (
                "reset its run in Temporal to run it again"
                if found[0].kind == "handler"
                else "`sched trigger` starts another run"
            )
            raise LetterNotFound(
                f"no window stands behind {found[0].workflow_id}",
                hint=f"{another}; `sched dead drop` discards it",
            )
        if letter.windows > 1:
            span = (letter.fire_time, letter.last_fire_time)
            first, last = (iso_text(each) for each in span)
            raise LetterNotFound(
                f"{letter.windows} windows were rejected together",
                hint=f"start them with `sched backfill {letter.key} --from {first} --to {last}`",
            )
        given = own_input or (letter.arguments if letter.kind == "rerun" else ())
        return await self.rerun(
            letter.key,
            letter.bucket,
            reason=reason,
            series=letter.series,
            overlap=overlap,
            own_input=given,
            letter=letter.workflow_id,
        )

    async def drop_dead(
        self,
        name: str,
        bucket: int | None = None,
        *,
        at: datetime | None = None,
        reason: str | None = None,
    ) -> list[DeadLetter]:
        """Drop the letter of a run id, or all letters of one window, and return them.

        Raises:
            LetterNotFound: there is no such letter.
        """
        return await self._drop(await self.dead_letters_of(name, bucket, at=at), reason)

    async def drop_all_dead(self, *, key: str | None = None, reason: str | None = None) -> int:
        """Drop every letter of one schedule or of all; return their number."""
        dropped = 0
        while found := await self._stored(key, _AT_ONCE):
            dropped += len(await self._drop(found, reason))
        return dropped

    async def _drop(self, found: Sequence[DeadLetter], reason: str | None) -> list[DeadLetter]:
        """Drop letters and return them, without those that were resolved concurrently."""
        async with self._ledger.transaction(long=True) as transaction:
            await transaction.lock(sorted({letter.key for letter in found}))
            dealt = await transaction.resolve_dead_letters([letter.workflow_id for letter in found])
            dropped = [letter for letter in found if letter.workflow_id in dealt]
            actions = [
                Action(
                    each.project,
                    each.key,
                    "drop",
                    reason,
                    each.workflow_id,
                    before={"status": each.status, "error": each.error or each.reason},
                )
                for each in dropped
            ]
            await transaction.act(actions, by=self._actor)
        return dropped

    async def _none(self, name: str, bucket: int | None) -> EngineError:
        if ":" in name:  # a run id: keys have no colon
            return LetterNotFound(
                f"there is no dead letter of {name}", hint="`sched dead list` shows every one"
            )
        if not await self._ledger.schedules(key=name):
            return ScheduleNotFound(name)
        if bucket is None:
            return LetterNotFound(
                f"{name} is the key of a schedule, not a dead letter",
                hint=f"name a window too, `{name} BUCKET`; `sched dead list {name}` shows which",
            )
        return LetterNotFound(
            f"there is no dead letter of window {bucket} of {name}",
            hint=f"`sched dead list {name}` shows every one, `sched log {name}` those dealt with",
        )
