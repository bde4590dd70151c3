"""Reasons are for people: with every sentence scrambled, everything becomes what it did before."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from datetime import timedelta
from typing import get_args

import pytest

from engine.ledger.fires import Status
from engine.schedules.terms import Reason, ReasonCode
from tests.conformance.conftest import Bench, async_fixture
from tests.conformance.past import declare_ago, declare_file_ago, operator
from tests.conformance.test_queue_full import turn

FILE = """
defaults: {catchUp: {policy: latest}}
schedules:
  - {key: full, workflow: noop, everyMs: 60000, firstFire: next, grace: 1h,
     overlap: queue, maxQueued: 2}
  - {key: missed, workflow: noop, everyMs: 60000, firstFire: next, grace: 30s}
  - {key: none, workflow: noop, everyMs: 60000, firstFire: next, grace: 30s,
     catchUp: {policy: none}}
  - {key: rested, workflow: noop, everyMs: 60000, firstFire: next, grace: 1h}
"""
KEYS = (None, "full", "rested")
TEN = timedelta(minutes=10)


@pytest.fixture(params=["as written", "scrambled"])
def sentences(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "as written":
        return
    written = Reason.__new__

    def scrambled(cls: type[Reason], code: str, text: str) -> Reason:
        return written(cls, code, f"zyx {text[::-1]}")  # type: ignore[arg-type] # one of the codes

    monkeypatch.setattr(Reason, "__new__", staticmethod(scrambled))
    for name, module in [*sys.modules.items()]:
        if name.startswith("engine."):
            for constant, value in [*vars(module).items()]:
                if isinstance(value, Reason):
                    monkeypatch.setattr(module, constant, Reason(value.code, str(value)))


@async_fixture
async def bench(ledger, clock) -> Bench:
    """Without a look at the sentences."""
    made = Bench(ledger, clock)
    await made.announce()
    return made


async def fates(bench: Bench, key: str) -> dict[tuple[str, str | None], int]:
    found: Counter[tuple[str, str | None]] = Counter()
    for fire in await bench.ledger.fires(key=key, limit=100):
        found[fire.status, fire.reason_code] += fire.windows
    return dict(found)


async def each_reason_lists_its_fires(bench: Bench) -> None:
    every = await bench.ledger.fires(limit=1000)
    codes: tuple[ReasonCode, ...] = ("caught_up", "coalesced", "paused", "queue_full", "user")
    for code, status, key in itertools.product(codes, (None, *get_args(Status)), KEYS):
        listed = await bench.ledger.fires(key=key, status=status, reason_code=code, limit=1000)
        with_code = [fire for fire in every if fire.reason_code == code]
        of_status = [fire for fire in with_code if status in {None, fire.status}]
        assert listed == [fire for fire in of_status if key in {None, fire.key}]
        newest = await bench.ledger.fires(key=key, status=status, reason_code=code, limit=1)
        assert newest == listed[:1]


@pytest.mark.usefixtures("sentences")
async def test_what_becomes_of_windows_does_not_depend_on_what_is_said_of_them(bench):
    await declare_file_ago(bench, FILE, TEN)
    service = operator(bench)
    await service.pause("rested", reason="a rest")
    _, alerts = await turn(bench, 100)
    assert len(alerts) == 1, "the queue is full, once"
    assert await fates(bench, "full") == {
        ("starting", None): 1, ("queued", None): 2, ("skipped", "queue_full"): 7,
    }  # fmt: skip
    assert (await bench.ledger.overflow("full"))[0] == 7
    assert await fates(bench, "missed") == {
        ("starting", "caught_up"): 1,
        ("skipped", "coalesced"): 9,
    }
    assert (await fates(bench, "none"))["expired", "expired"] in {9, 10}
    assert await fates(bench, "rested") == {("skipped", "paused"): 10}
    await each_reason_lists_its_fires(bench)


@pytest.mark.usefixtures("sentences")
async def test_what_a_backfill_starts_does_not_depend_on_what_is_said_of_windows(bench):
    now = bench.now()
    yesterday = now.date() - timedelta(days=1)
    hourly = f"everyMs: 3600000, firstFire: next, exclude: [{yesterday}]"
    await declare_ago(bench, hourly, timedelta(days=3))
    await bench.claim()
    assert (await fates(bench, "k"))["skipped", "excluded"] == 24
    found = await operator(bench).preview_backfill("k", now - timedelta(days=3), now)
    assert found.starts.keys() <= {"expired"}
    assert found.left_alone["excluded"] == 24


@pytest.mark.usefixtures("sentences")
async def test_what_an_operator_skipped_is_known_whatever_was_said(bench):
    await bench.declare('schedules: [{key: k, workflow: noop, cron: "0 2 * * *"}]')
    service = operator(bench)
    (row,) = await service.schedules()
    at = row.next_fire_at
    assert at is not None
    assert (await service.skip("k", at, reason="a holiday")).changed
    assert not (await service.skip("k", at)).changed, "it is skipped already"
    await bench.declare('schedules: [{key: k, workflow: noop, cron: "0 2 * * *", grace: 2m}]')
    assert await fates(bench, "k") == {("skipped", "user"): 1}, "the edit has kept it"
    assert (await service.unskip("k", at)).changed
    assert await fates(bench, "k") == {}
