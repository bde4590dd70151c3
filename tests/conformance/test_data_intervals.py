"""The data intervals of successive runs meet, whatever lies between; or it is told."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from engine.ledger.fires import REPEATS, Claim, Evidence, Outcome
from engine.ledger.records import BackfillOverlap, ToLay
from engine.runtime.apply.definitions import first_definition
from engine.runtime.apply.edits import rename
from engine.runtime.dispatch.starter import fire_info
from engine.schedules import load_schedules
from engine.schedules.planner.decisions import Decision, Move, Plan
from engine.schedules.terms import Reason
from tests.conformance.conftest import NOW, Bench, async_fixture
from tests.conformance.past import LEASE, MINUTE, operator
from tests.examples import examples

KEYS = itertools.count(1)
AT_ONCE = timedelta(seconds=-1)
"""Nobody else is about to begin anything here."""
BY_ME = Reason("user", "user: test")


class Minutes:
    """A schedule of a minute whose windows become what a test says; they are numbered from 1."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.ledger, self.key = bench, bench.ledger, f"k{next(KEYS)}"
        self.keys = [self.key]
        self.decided = 0
        self.claims: dict[int, list[Claim]] = {}
        """By window: those whose run may still be denied, and those that run."""
        self.begun: dict[int, list[Claim]] = {}

    async def declare(self) -> Minutes:
        text = f"schedules: [{{key: {self.key}, workflow: noop, everyMs: 60000}}]"
        (schedule,) = load_schedules(text).schedules
        minute = NOW.replace(second=0, microsecond=0)
        self.first = minute - timedelta(hours=10)
        new = first_definition(schedule, self.first, project="default", workflow_type="noop@1")
        async with self.ledger.transaction(long=True) as transaction:
            await transaction.define([new], by="test")
        return self

    async def rename(self) -> None:
        was, self.key = self.key, f"k{next(KEYS)}"
        self.keys.append(self.key)
        async with self.ledger.transaction(long=True) as transaction:
            await transaction.lock(self.keys)
            await rename(transaction, self.key, was, NOW, by="test", why=None)

    def at(self, number: int) -> datetime:
        return self.first + number * MINUTE

    def number(self, at: datetime) -> int:
        return round((at - self.first) / MINUTE)

    async def state(self, transaction):
        (state,) = await transaction.read([self.key], all_open=True)
        return state

    async def decide(self, verdict: str) -> None:
        """``now``, ``later``, ``queued`` or ``skipped``."""
        self.decided += 1
        async with self.ledger.transaction() as transaction:
            state, at = await self.state(transaction), self.at(self.decided)
            starts = verdict in {"now", "later"}
            decision = Decision(
                state.window(at), "claimed" if starts else verdict,  # type: ignore[arg-type] # one of them
                reason=BY_ME if verdict == "skipped" else None,
                timing=None if verdict == "skipped" else "on_time",
            )  # fmt: skip
            owner = "replica-a" if verdict == "now" else None
            step = Plan(state, (decision,), at, self.at(self.decided + 1))
            step = replace(step, state=replace(state, max_bucket=decision.window.bucket))
            self._begin(await transaction.record([step], owner=owner, lease=LEASE))

    async def status(self, number: int) -> str:
        fires = await self.ledger.fires(key=self.key, limit=1000)
        rows = [fire for fire in fires if self.number(fire.fire_time) == number]
        return next(fire.status for fire in rows if ":rerun" not in fire.workflow_id)

    async def promote(self, number: int) -> None:
        async with self.ledger.transaction() as transaction:
            state = await self.state(transaction)
            moves = tuple(
                Move(each, "start")
                for each in state.open_fires
                if each.status == "queued" and self.number(each.fire_time) == number
            )
            await transaction.move(state, moves)

    async def take(self, limit: int = 1) -> None:
        self._begin(await self.ledger.take_over(self.bench.serving, limit=limit, lease=LEASE))

    async def settle(self, number: int, status: str) -> None:
        for claim in self.claims.pop(number, []):
            outcome = Outcome(claim.fire_id, claim.token, status)  # type: ignore[arg-type] # a word
            if status == "started":
                now = NOW
                outcome = replace(outcome, timing="on_time", run_id="run", started_at=now)
            assert await self.ledger.settle([outcome]) == 1
            if status != "started":
                self.begun[number].remove(claim)

    async def give_up(self, number: int) -> None:
        async with self.ledger.transaction() as transaction:
            state = await self.state(transaction)
            mine = [each.workflow_id for each in state.open_fires
                    if self.number(each.fire_time) == number]  # fmt: skip
            await transaction.give_up(mine, BY_ME)

    async def backfill(self, number: int, *, queued: bool = False) -> None:
        async with self.ledger.transaction() as transaction:
            state = await self.state(transaction)
            window = state.window(self.at(number))
            windows = [ToLay(window, window.workflow_id(state.suffixed), again=True)]
            overlap: BackfillOverlap = "queue" if queued else "allow"
            claims, _ = await transaction.lay(
                state, windows, overlap=overlap, owner="replica-a", lease=LEASE
            )  # fmt: skip
        self._begin(claims)

    async def rerun(self, number: int) -> None:
        async with self.ledger.transaction() as transaction:
            bucket = (await self.state(transaction)).window(self.at(number)).bucket
        await operator(self.bench).rerun(self.key, bucket)

    async def check(self) -> list[tuple[int, int]]:
        """Return the gaps that are told now."""
        found = await self.ledger.check_data_gaps(rest=AT_ONCE, limit=100)
        return [self._gap(each) for each in found if each.key in self.keys]

    async def gaps(self) -> list[tuple[int, int]]:
        return [self._gap(each) for each in await self.ledger.data_gaps(self.key, limit=1000)]

    def _gap(self, gap) -> tuple[int, int]:
        begin = 0 if gap.data_from is None else self.number(gap.data_from)
        return begin, self.number(gap.data_to)

    def _begin(self, claims: list[Claim]) -> None:
        for claim in claims:
            if claim.key in self.keys:
                for of in (self.claims, self.begun):
                    of.setdefault(self.number(claim.fire_time), []).append(claim)

    def interval(self, number: int) -> tuple[int, int]:
        """Which data the newest run of a window is told to have; from 0 on: of all before it."""
        info = fire_info(self.begun[number][-1], ledger="l", timing="on_time")
        assert self.number(info.data_to) == number
        return 0 if info.data_from is None else self.number(info.data_from), number


@async_fixture
async def minutes(bench) -> Minutes:
    return await Minutes(bench).declare()


async def test_the_first_run_has_all_that_came_before(minutes):
    await minutes.decide("skipped")
    await minutes.decide("now")
    assert minutes.interval(2) == (0, 2)
    info = fire_info(minutes.begun[2][0], ledger="l", timing="on_time")
    assert info.data_from is None


@pytest.mark.parametrize("denied", ["skipped", "given up", "rejected", "unvouched"])
async def test_what_did_not_run_leaves_its_data_to_the_next_run(minutes, denied):
    await minutes.decide("now")
    if denied == "skipped":
        await minutes.decide("skipped")
    elif denied == "given up":
        await minutes.decide("queued")
        await minutes.give_up(2)
    else:
        await minutes.decide("now")
        await minutes.settle(2, denied)
    await minutes.decide("now")
    assert minutes.interval(3) == (1, 3)
    assert await minutes.check() == []


async def test_who_begins_first_leaves_its_data_to_a_window_that_is_still_to_begin(minutes):
    await minutes.decide("now")
    await minutes.decide("queued")
    await minutes.decide("now")
    assert minutes.interval(3) == (2, 3)
    await minutes.promote(2)
    await minutes.take()
    assert minutes.interval(2) == (1, 2)


@pytest.mark.parametrize("how", ["given up", "rejected", "unvouched"])
async def test_a_window_that_does_not_run_after_all_is_a_gap_until_its_rerun(minutes, how):
    await minutes.decide("now")
    await minutes.decide("queued" if how == "given up" else "now")
    await minutes.decide("now")
    if how == "given up":
        await minutes.give_up(2)
    else:
        await minutes.settle(2, how)
    assert await minutes.check() == [(1, 2)]
    assert await minutes.check() == [], "it is told once"
    assert await minutes.gaps() == [(1, 2)]
    (gap,) = await minutes.ledger.data_gaps(minutes.key)
    assert f"`sched rerun {minutes.key} {gap.bucket}`" in gap.description
    await minutes.rerun(2)
    assert await minutes.gaps() == [(1, 2)], "it has only been asked for"
    await minutes.take()
    assert minutes.interval(2) == (1, 2)
    assert await minutes.gaps() == []


async def test_windows_that_were_denied_one_after_another_are_one_gap(minutes):
    await minutes.decide("now")
    for _ in range(3):
        await minutes.decide("queued")
    await minutes.decide("now")
    for number in (3, 2, 4):
        await minutes.give_up(number)
    assert await minutes.check() == [(1, 4)]
    await minutes.backfill(2)
    assert minutes.interval(2) == (1, 2)
    assert await minutes.gaps() == [(2, 4)], "it begins behind what has begun"
    await minutes.backfill(4)
    assert minutes.interval(4) == (2, 4)
    assert await minutes.gaps() == []


async def test_a_gap_that_grows_is_closed_by_the_rerun_that_was_told(minutes):
    await minutes.decide("now")
    await minutes.decide("queued")
    await minutes.decide("queued")
    await minutes.decide("now")
    await minutes.give_up(3)
    assert await minutes.check() == [(2, 3)]
    await minutes.give_up(2)
    assert await minutes.check() == [], "two reruns would process the same data"
    assert await minutes.gaps() == [(1, 3)]
    await minutes.rerun(3)
    await minutes.take()
    assert minutes.interval(3) == (1, 3)
    assert await minutes.gaps() == []


async def test_a_rerun_that_does_not_run_either_leaves_the_gap_as_it_was(minutes):
    await minutes.decide("now")
    await minutes.decide("now")
    await minutes.decide("now")
    await minutes.settle(2, "rejected")
    assert await minutes.check() == [(1, 2)]
    await minutes.backfill(2)
    await minutes.settle(2, "rejected")
    assert await minutes.gaps() == [(1, 2)]
    assert await minutes.check() == [], "it was told"
    assert await minutes.gaps() == [(1, 2)]


async def test_a_window_whose_data_a_later_run_has_had_repeats_its_own_share(minutes):
    await minutes.decide("now")
    await minutes.decide("skipped")
    await minutes.decide("skipped")
    await minutes.decide("now")
    await minutes.backfill(3)
    assert (minutes.interval(3), minutes.interval(4)) == ((2, 3), (1, 4))
    await minutes.settle(4, "rejected")
    await minutes.decide("now")
    assert minutes.interval(5) == (1, 5), "what repeated is no end of what others have had"


async def test_windows_of_a_line_repeat_their_shares_too(minutes):
    for _ in range(3):
        await minutes.decide("skipped")
    await minutes.decide("now")
    for number in (1, 2, 3):
        await minutes.backfill(number, queued=True)
    for number in (1, 2, 3):
        await minutes.promote(number)
        await minutes.take()
        assert minutes.interval(number) == (number - 1, number)
    assert minutes.interval(4) == (0, 4)


async def test_a_rerun_keeps_the_interval_of_its_window(minutes):
    await minutes.decide("now")
    await minutes.decide("skipped")
    await minutes.decide("now")
    await minutes.settle(3, "started")
    async with minutes.ledger.transaction() as transaction:
        assert (await minutes.state(transaction)).schedule.overlap == "allow"
    fires = await minutes.ledger.fires(key=minutes.key)
    await _closed(minutes, next(fire.workflow_id for fire in fires if fire.run_id))
    await minutes.backfill(2)
    await minutes.rerun(3)
    await minutes.take()
    assert len(minutes.begun[3]) == 2
    assert minutes.interval(3) == (1, 3)


async def _closed(minutes: Minutes, workflow_id: str) -> None:
    now = NOW
    seen = Evidence(workflow_id, "run", now, closed="failed", closed_at=now)
    assert await minutes.ledger.record_evidence([seen]) == [workflow_id]


NUMBERS = st.integers(1, 5)
MOVES = st.one_of(
    st.tuples(st.just("decide"), st.sampled_from(["now", "now", "later", "queued", "skipped"])),
    st.tuples(st.sampled_from(["give_up", "promote", "backfill", "queue", "rerun"]), NUMBERS),
    st.tuples(st.sampled_from(["started", "rejected", "unvouched"]), NUMBERS),
    st.tuples(st.sampled_from(["take", "check", "rename"]), st.none()),
)


@settings(
    max_examples=examples(200), deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(moves=st.lists(MOVES, min_size=8, max_size=25), last=st.booleans())
async def test_whatever_happens_each_share_is_one_runs_or_it_is_told(bench, moves, last):
    minutes = await Minutes(bench).declare()
    for move, value in moves:
        await _do(minutes, move, value)
    if last:  # what waits begins, so that all that has begun is followed by something that has
        for number in range(1, minutes.decided + 1):
            await minutes.promote(number)
    await minutes.take(limit=1000)
    await minutes.check()
    told = {share for begin, end in await minutes.gaps() for share in range(begin + 1, end + 1)}
    repeats = {n for n, runs in minutes.begun.items() if runs and _repeats(runs[0])}
    counted = [n for n, runs in minutes.begun.items() if runs and n not in repeats]
    had = Counter(share for n in counted for share in range(minutes.interval(n)[0] + 1, n + 1))
    waiting = {n for n in range(1, minutes.decided + 1) if await _waits(minutes, n)}
    assert not [share for share, runs in had.items() if runs > 1], "one run has it"
    for share in range(1, max(counted, default=0) + 1):
        left_to = [n for n in waiting if n >= share]
        assert had[share] == 1 or share in told or left_to, f"nobody has {share}"
        assert not (had[share] and share in told), f"{share} is told, and somebody has it"


def _repeats(claim: Claim) -> bool:
    return claim.data_from == REPEATS


async def _waits(minutes: Minutes, number: int) -> bool:
    return await minutes.status(number) in {"claimed", "queued"}


async def _do(minutes: Minutes, move: str, value) -> None:
    if move == "decide":
        if minutes.decided < 5:
            await minutes.decide(value)
    elif move in {"take", "check", "rename"}:
        await getattr(minutes, move)()
    elif value > minutes.decided:
        return
    elif move in {"started", "rejected", "unvouched"}:
        await minutes.settle(value, move)
    elif move in {"give_up", "promote"}:
        await getattr(minutes, move)(value)
    elif await minutes.status(value) in {"skipped", "rejected"}:
        await _again(minutes, move, value)


async def _again(minutes: Minutes, move: str, number: int) -> None:
    fires = await minutes.ledger.fires(key=minutes.key, limit=1000)
    if move != "rerun":
        # A backfill leaves a row of a former key alone.
        if all(
            each.key == minutes.key for each in fires if minutes.number(each.fire_time) == number
        ):
            await minutes.backfill(number, queued=move == "queue")
        return
    if not any(":rerun" in each.workflow_id and minutes.number(each.fire_time) == number
               for each in fires):  # fmt: skip
        await minutes.rerun(number)
