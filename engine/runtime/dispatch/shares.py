"""Shares: whose turn it is when more is due, or claimed, than can be started at once.

A share is the runs of one workflow for one tenant (``Schedule.share``). Tenants take turns, so do
the workflows of each, and what is on time takes turns with what is late. So a tenant with ten
thousand windows that are due delays another one by one turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from engine.ledger import DueByShare, DueKey
from engine.runtime.clock import boottime
from engine.schedules import code_of, tenant_of
from engine.schedules.planner import Plan, ScheduleState, ShareTurn

T = TypeVar("T")

Answered: TypeAlias = Callable[[float], None]
"""Callback for an answer, called with the ``boottime`` when the call was sent."""

LATE: Final = timedelta(seconds=1)
"""Age from which on a window takes its turn among those that are late."""


class _Rotation(Generic[T]):
    """Line in which tenants take turns, and the workflows of each tenant."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, deque[T]]] = {}

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def add(self, share: str, item: T) -> None:
        self._tenants.setdefault(tenant_of(share), {}).setdefault(share, deque()).append(item)

    def pop(self) -> T:
        tenant = next(iter(self._tenants))
        shares = self._tenants.pop(tenant)
        share = next(iter(shares))
        line = shares.pop(share)
        item = line.popleft()
        # Whoever had its turn goes to the end.
        if line:
            shares[share] = line
        if shares:
            self._tenants[tenant] = shares
        return item


class Turns(Generic[T]):
    """Items in the order of their turns. Those of one share keep theirs."""

    def __init__(self) -> None:
        self._on_time, self._late = _Rotation[T](), _Rotation[T]()
        self._late_next = True

    def __bool__(self) -> bool:
        return bool(self._on_time or self._late)

    def add(self, share: str, item: T, *, late: bool) -> None:
        """Add an item at the end of its share."""
        (self._late if late else self._on_time).add(share, item)

    def __iter__(self) -> Iterator[T]:
        """Remove and yield the items."""
        while self:
            yield self.pop()

    def has(self, *, late: bool) -> bool:
        """Return whether an item may have a turn; ``late``: also one that is late."""
        return bool(self._on_time or (late and self._late))

    def pop(self, *, late: bool = True) -> T:
        """Remove and return the item whose turn it is; ``late``: maybe one that is late."""
        if not late:
            return self._on_time.pop()
        self._late_next = not self._late_next
        first, second = self._on_time, self._late
        if self._late_next:
            first, second = second, first
        return (first or second).pop()


class Limit(Protocol):
    """Limit of calls in flight that learns from their answers; see ``backpressure.Vegas``."""

    @property
    def limit(self) -> int:
        """The most calls in flight at present."""

    def answered(self, took: float, *, among: int, now: float) -> None:
        """Record how long a call took, sent as one of ``among`` calls in flight."""


class FairSlots:
    """Slots that are given in turns; see ``Turns``.

    Args:
        count: the number of slots.
        spare: limits those of them that are late: then they take the server's spare capacity only,
            and those that are on time find a short queue there.

    Attributes:
        waiting: number of those that wait.
    """

    def __init__(self, count: int, spare: Limit | None = None) -> None:
        self._free, self._late, self.waiting = count, 0, 0
        self._turns = Turns[tuple[asyncio.Future[None], bool]]()
        self._spare = spare

    @asynccontextmanager
    async def place(self, share: str = "", *, late: bool = False) -> AsyncIterator[Answered]:
        """Hold a slot while the block lasts; wait for it first.

        Yield the callback for the answer to the call that is made in it.
        """
        turn = asyncio.get_running_loop().create_future()
        self._turns.add(share, (turn, late), late=late)
        self.waiting += 1
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self.waiting -= 1
            else:
                self._take_back(late=late)
            raise
        among = self._late

        def answered(sent_at: float) -> None:
            now = boottime()
            if late and self._spare is not None:
                self._spare.answered(now - sent_at, among=among, now=now)

        try:
            yield answered
        finally:
            self._take_back(late=late)

    def _give(self) -> None:
        while self._free and self._turns.has(late=self._late_may_go):
            turn, late = self._turns.pop(late=self._late_may_go)
            if not turn.done():  # else the caller was cancelled
                turn.set_result(None)
                self._free -= 1
                self._late += late
                self.waiting -= 1

    @property
    def _late_may_go(self) -> bool:
        return self._spare is None or self._late < self._spare.limit

    def _take_back(self, *, late: bool) -> None:
        self._free += 1
        self._late -= late
        self._give()


# --- choice among due keys ---

_GAP: Final = timedelta(seconds=5)
"""Least time between two ticks after which windows may have waited for them."""
_MOST_KEPT: Final = 10_000


class Crowd:
    """Memory of one poller of shares, while more is due than its ticks can claim.

    A share is drained by a tick that leaves none of its keys due. What becomes due after that has
    waited for other shares only, as long as the ticks go on.

    Args:
        tick: the longest time between two ticks that go on.

    Attributes:
        lasts: whether the last tick left keys that are due.
        after: the share after which the next look begins.
        next_at: when the next key becomes due, as the last look found it.
    """

    def __init__(self, tick: timedelta) -> None:
        self._gap = max(_GAP, tick * 3)
        self.lasts, self.after = False, ""
        self.next_at: datetime | None = None
        self._in_turns = False
        self._seen_at: datetime | None = None
        self._all_drained_at: datetime | None = None
        self._drained_at: dict[str, datetime] = {}
        self._left: frozenset[str] = frozenset()
        self._told: set[str] = set()

    def observe(self, now: datetime, *, due: bool, on: bool) -> None:
        """Record that a tick begins.

        Args:
            now: the ledger's clock.
            due: whether any key is due.
            on: whether this replica can start what is due.
        """
        if not on or self._seen_at is None or now - self._seen_at > self._gap:
            self._all_drained_at = None
            self._drained_at.clear()
        self._seen_at = now if on else None
        if not due:
            self._ends(now)

    def begin(self, *, full: bool) -> None:
        """Record a tick that takes the earliest keys; ``full``: as many as it may take."""
        self.lasts, self.next_at, self._in_turns = full, None, False

    def choose(
        self, found: DueByShare, room: int, room_of: Callable[[str, bool], int]
    ) -> list[DueKey]:
        """Return at most ``room`` keys, in the order of their turns.

        Args:
            found: what is due.
            room: how many keys to choose.
            room_of: returns how many more starts a share may have, of late windows if so.
        """
        turns, taken, left = Turns[tuple[DueKey, bool]](), Counter[str](), set[str]()
        for each in {each.key: each for each in found.keys}.values():
            late = found.now - each.due_at > LATE
            turns.add(each.share, (each, late), late=late)
        chosen: list[DueKey] = []
        for each, late in turns:
            if len(chosen) < room and taken[each.share] < room_of(each.share, late):
                taken[each.share] += 1
                chosen.append(each)
            else:
                left.add(each.share)
        without = min(left - taken.keys(), default=None)
        before = max((share for share in taken if without and share < without), default="")
        self.after = before if without else found.further or ""
        self.lasts, self._left = bool(left or self.after), frozenset(left)
        self.next_at, self._in_turns = found.next_at, True
        return chosen

    def turn_of(self, share: str) -> ShareTurn | None:
        """Return why windows of a share are late, for the keys of the present tick."""
        if not self._in_turns:
            return None
        if share in self._left:
            return ShareTurn(overloaded=True)
        return ShareTurn(waited_since=self._drained_at.get(share, self._all_drained_at))

    def end(self, now: datetime, planned: Mapping[str, bool]) -> None:
        """Record the end of a tick.

        Args:
            now: the ledger's clock.
            planned: the shares of which keys were planned, and whether some of these are still due.
        """
        if not self.lasts:
            self._ends(now)
            return
        drained = [share for share, due in planned.items() if not due and share not in self._left]
        if len(self._drained_at) > _MOST_KEPT:
            self._drained_at.clear()
        if self._in_turns:
            self._drained_at.update(dict.fromkeys(drained, now))

    def is_news(self, share: str) -> bool:
        """Return whether the overload of a share was not reported since the crowd began."""
        if share in self._told:
            return False
        self._told.add(share)
        return True

    def _ends(self, now: datetime) -> None:
        self.lasts, self.after, self._left = False, "", frozenset()
        self._all_drained_at = now
        self._drained_at.clear()
        self._told.clear()


class KeyRoom(NamedTuple):
    """How many windows of a key a tick may claim, and why they are late; see ``plan``."""

    room: int
    turn: ShareTurn | None


class TickRoom:
    """Room of one tick for claims, divided among the keys that it plans.

    Args:
        room: how many windows the tick may claim.
        states: the keys to plan.
        room_of: as for ``Crowd.choose``.
        crowd: None for a tick that plans keys apart.

    Attributes:
        left: how many windows it may still claim.
    """

    def __init__(
        self,
        room: int,
        states: Sequence[ScheduleState],
        room_of: Callable[[str, bool], int],
        crowd: Crowd | None,
    ) -> None:
        self.left, self._crowd = room, crowd
        self._keys = Counter(state.schedule.share for state in states)
        self._of = {share: room_of(share, False) for share in self._keys}
        self._due: dict[str, bool] = {}
        self._overloads: dict[str, int] = {}

    def of(self, state: ScheduleState) -> KeyRoom:
        """Return the part of a key; while the crowd lasts, the keys of a share have equal ones."""
        share = state.schedule.share
        room, keys = min(self.left, self._of[share]), self._keys[share]
        self._keys[share] -= 1
        if self._crowd is None:
            return KeyRoom(room, None)
        if room <= 0:
            self._due[share] = self._crowd.lasts = True
        elif self._crowd.lasts:
            room = max(room // keys, 1)
        return KeyRoom(room, self._crowd.turn_of(share))

    def planned(self, planned: Plan, now: datetime) -> None:
        """Record what was decided on a key."""
        share = planned.state.schedule.share
        claimed = sum(each.verdict == "claimed" for each in planned.decisions)
        self.left -= claimed
        self._of[share] -= claimed
        due = planned.next_fire_at is not None and planned.next_fire_at <= now
        self._due[share] = self._due.get(share, False) or due
        given_up = sum(
            each.windows for each in planned.decisions if code_of(each.reason) == "overload"
        )
        if given_up:
            self._overloads[share] = self._overloads.get(share, 0) + given_up

    def end(self, now: datetime) -> dict[str, int]:
        """Record the end of the tick.

        Return the shares that are overloaded since now, and how many of their windows were given
        up.
        """
        if self._crowd is None:
            return {}
        self._crowd.end(now, self._due)
        return {
            share: each for share, each in self._overloads.items() if self._crowd.is_news(share)
        }
