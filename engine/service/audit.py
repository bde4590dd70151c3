"""Audit and explanation of what the ledger has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from engine.audit.explain import Explanation, explain, together_with
from engine.audit.history import History, UnreadableVersion
from engine.audit.judge import AuditFault, KeyAudit, KeyJudge, RunSource, SeenRuns, VerdictWord
from engine.errors import DefinitionUnreadable, MomentInFuture
from engine.ledger import DefinitionVersion, Fire, Standing
from engine.schedules import utc_text
from engine.schedules.planner import TIME_RULES, blocked_by
from engine.service.base import ReadOperations

_ROWS: Final = 5000
_KEYS: Final = 200
_VERSIONS: Final = 1000
"""Most versions of one definition; an older window is outside of what an audit looks at."""
_ACTIONS: Final = 10_000
_TRIES: Final = 6
_ASKED_FOR: Final = 1000
"""Most runs that are looked up one by one, because visibility did not show them."""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Verdicts on schedules.

    Attributes:
        since, until: the fire times that were audited.
        against_temporal: whether Temporal was asked for its runs.
        rules: the time rules of the audit.
        schedules: a verdict on each schedule, by key.
        notes: what limits all of them, a sentence each.
        unknown: keys that the ledger does not have, each with the number of its runs in Temporal.
    """

    since: datetime
    until: datetime
    against_temporal: bool
    rules: str
    schedules: tuple[KeyAudit, ...]
    notes: tuple[str, ...] = ()
    unknown: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether every verdict is ``complete``, and Temporal has no run of an unknown key."""
        return not self.unknown and all(each.verdict == "complete" for each in self.schedules)

    @property
    def verdict(self) -> dict[VerdictWord, int]:
        """Number of schedules by verdict."""
        found: dict[VerdictWord, int] = {}
        for each in self.schedules:
            found[each.verdict] = found.get(each.verdict, 0) + 1
        return found


class Accounts(ReadOperations):
    """Operations that check what the ledger has; none of them writes."""

    async def audit(
        self,
        since: datetime | timedelta,
        *,
        key: str | None = None,
        project: str | None = None,
        runs: RunSource | None = None,
    ) -> AuditReport:
        """Compare what every schedule owed with the rows of the ledger.

        The windows are derived from the stored definitions and the recorded actions, by an
        evaluator that shares no code with the engine's.

        Args:
            since: the first fire time, or how long before now it is by the ledger's clock.
            key: only this schedule.
            project: only this project's schedules.
            runs: the runs in Temporal, to compare them too.

        Raises:
            MomentInFuture: ``since`` is to come.
            ScheduleNotFound: there is no such schedule.
        """
        first, until = await self._since(since)
        rows = [await self.present(key)] if key is not None else await self.schedules(project)
        # A former key is audited with the schedule that it was of.
        keys = [*dict.fromkeys(row.successor or row.key for row in rows)]
        # Before any row is read: a run that begins later has its row by then.
        seen = None
        if runs is not None:
            named = (rows[0].key, *rows[0].former) if key is not None else ()
            seen = await runs.read(await self._ledger.identity(), first, named)
        audits: list[KeyAudit] = []
        for place in range(0, len(keys), _KEYS):
            for standing in await self._ledger.standings(keys[place : place + _KEYS]):
                audits.append(await self._audit(standing, first, until, runs, seen))
                await asyncio.sleep(0)
        notes = seen.notes if seen else ()
        unknown = await self._unknown(seen) if seen and not (key or project) else {}
        return AuditReport(
            first, until, runs is not None, TIME_RULES, tuple(audits), notes, unknown
        )

    async def _since(self, since: datetime | timedelta) -> tuple[datetime, datetime]:
        """Return the first fire time of a look back, and the ledger's clock.

        Raises:
            MomentInFuture: it is to come.
        """
        async with self._ledger.transaction() as transaction:
            now = await transaction.now()
        first = since if isinstance(since, datetime) else now - since
        if first > now:
            raise MomentInFuture(f"{utc_text(first)} is to come, it is {utc_text(now)}")
        return first, now

    async def _unknown(self, seen: SeenRuns) -> dict[str, int]:
        """Return the number of runs of each key that the ledger does not have.

        It is asked now: a schedule may have come since the runs were read, and lists leave out
        those of forgotten projects.
        """
        keys, known = sorted(seen.by_key), set[str]()
        for place in range(0, len(keys), _KEYS):
            standings = await self._ledger.standings(keys[place : place + _KEYS])
            known.update(each.key for each in standings)
        return {key: sum(map(len, seen.by_key[key].values())) for key in keys if key not in known}

    async def explain(self, key: str, at: datetime) -> Explanation:
        """Explain one window: what was decided, by which rule, and whether the planner agrees.

        Raises:
            ScheduleNotFound: there is no such schedule.
            DefinitionUnreadable: this version cannot read its definitions.
        """
        key = (await self.present(key)).key
        (standing,) = await self._ledger.standings([key])
        try:
            history, versions, _ = await self._history(standing)
        except UnreadableVersion as error:
            hint = "ask with the version that wrote it"
            raise DefinitionUnreadable(f"a definition of {key}: {error}", hint=hint) from error
        rows = await self._ledger.between(key, at, at, limit=10)
        rows = [row for row in rows if row.windows == 1] + [row for row in rows if row.windows > 1]
        together = await self._around(key, rows[0], at) if rows else []
        blocking = None
        if rows and rows[0].reason_code == "overlap":
            blocking = await self._ledger.fire(blocked_by(rows[0].reason or ""))
        return explain(history, versions, at, rows, together, blocking)

    async def _audit(
        self,
        standing: Standing,
        first: datetime,
        last: datetime,
        runs: RunSource | None,
        seen: SeenRuns | None,
    ) -> KeyAudit:
        """Return the verdict on one schedule."""
        try:
            history, _, notes = await self._history(standing)
        except UnreadableVersion as error:
            return _unreadable(standing, first, error)
        kept_since = seen.kept_since if seen else None
        own = seen.of(standing.key, *standing.former) if seen else None
        judge = KeyJudge(history, first, last, runs=own, kept_since=kept_since)
        async for row in self._rows(standing.key, first, last):
            judge.push(row)
        judge.close()
        (after,) = await self._ledger.standings([standing.key])
        if after.forgotten_until != standing.forgotten_until:
            # The janitor has removed rows meanwhile. It does so once a day.
            return await self._audit(after, first, last, runs, seen)
        if runs is not None:
            await _look_up(judge, runs)
        return judge.verdict(*notes)

    async def _rows(self, key: str, first: datetime, last: datetime) -> AsyncIterator[Fire]:
        after = None
        while True:
            rows = await self._ledger.between(key, first, last, after=after, limit=_ROWS)
            for row in rows:
                yield row
            if len(rows) < _ROWS:
                return
            after = rows[-1].fire_time, rows[-1].series

    async def _history(
        self, standing: Standing
    ) -> tuple[History, list[DefinitionVersion], tuple[str, ...]]:
        key = standing.key
        versions = await self._ledger.definition_versions(key, limit=_VERSIONS)
        actions = await self._ledger.actions(key=key, limit=_ACTIONS)
        notes = tuple(_notes(standing, len(versions), len(actions)))
        return History.of(standing, versions, actions), versions, notes

    async def _around(self, key: str, row: Fire, at: datetime) -> list[Fire]:
        """Return rows around a window, as far back as its plan reached, if they are not many."""
        reach = max(row.decided_at - at, timedelta(0)) + timedelta(minutes=2)
        last = max(row.decided_at, row.last_fire_time)
        found = [row]
        for _ in range(_TRIES):
            begin = min(row.fire_time, at - reach)
            rows = await self._ledger.between(key, begin, last, limit=_ROWS)
            if len(rows) == _ROWS:
                break
            found = rows
            if together_with(row, rows)[0] is not rows[0]:
                break  # one before it is of an earlier plan
            reach *= 4
        return found


def _notes(standing: Standing, versions: int, actions: int) -> Iterable[str]:
    if standing.rules != TIME_RULES:
        yield (
            f"it was computed by the time rules {standing.rules}, and the audit has {TIME_RULES}:"
            " windows near a change of its zone may differ"
        )
    if versions == _VERSIONS:
        yield f"only its newest {_VERSIONS:,} definitions were read"
    if actions == _ACTIONS:
        yield f"only the newest {_ACTIONS:,} actions were read: older pauses are not known"


def _unreadable(standing: Standing, first: datetime, error: UnreadableVersion) -> KeyAudit:
    text = f"its definition cannot be read: {error}; audit with the version that wrote it"
    fault = AuditFault("unreadable", first, text)
    return KeyAudit(
        standing.key, standing.project, "unreadable", 0, {}, (fault,), {"unreadable": 1}
    )


async def _look_up(judge: KeyJudge, runs: RunSource) -> None:
    """Ask for the runs that visibility did not show: it may lag behind."""
    older, newest = judge.unseen[:-_ASKED_FOR], judge.unseen[-_ASKED_FOR:]
    known = await asyncio.gather(*(runs.knows(row.workflow_id) for row in newest))
    for row in older:
        judge.lost(row)
    for row, is_known in zip(newest, known, strict=True):
        if not is_known:
            judge.lost(row)
