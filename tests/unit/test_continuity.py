"""Signs that a ledger lost its last commits: what is one, and what is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from engine.errors import LedgerError, LedgerUnavailable
from engine.ledger import Ledger
from engine.ledger.records import Lineage, Probe
from engine.runtime.events import Alert
from engine.runtime.tick.failover import FailoverDetector

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PROBE = Probe(NOW, UUID(int=1), 7, None, None, server=NOW - timedelta(days=9), transactions=900)
RESTARTED = replace(PROBE, server=NOW)
HERE = Lineage("s1", 3)


class Noted:
    """The part of a ledger that remembers who answered."""

    def __init__(self, here: Lineage = HERE, noted: Lineage = HERE) -> None:
        self.here, self.noted = here, noted
        self.suspect_until: datetime | None = None
        self.asked = 0
        self.away = False

    async def lineage(self) -> tuple[Lineage, Lineage]:
        self.asked += 1
        if self.away:
            raise LedgerUnavailable
        return self.here, self.noted

    async def unvouched_until(self, _: object) -> None:
        return

    async def note_lineage(self, lineage: Lineage, *, suspect: bool) -> datetime | None:
        self.noted = lineage
        if suspect:
            self.suspect_until = NOW
        return self.suspect_until


class Watcher(FailoverDetector):
    def __init__(self, noted: Noted) -> None:
        self.told: list[Any] = []
        super().__init__(cast("Ledger", noted), on_event=self.told.append)

    @property
    def alerts(self) -> list[str]:
        return [event.text for event in self.told if isinstance(event, Alert)]


async def watching(**lineages: Lineage) -> tuple[Watcher, Noted]:
    noted = Noted(**lineages)
    watcher = Watcher(noted)
    await watcher.observe(PROBE)
    return watcher, noted


async def test_a_server_that_was_restarted_is_no_sign():
    watcher, noted = await watching()
    assert not await watcher.observe(replace(RESTARTED, transactions=990, met=901))
    assert (watcher.alerts, watcher.suspect_until, noted.asked) == ([], None, 2)


async def test_while_the_same_server_answers_nothing_more_is_asked():
    watcher, noted = await watching()
    for number in range(5):
        assert not await watcher.observe(replace(PROBE, transactions=900 + number, met=800))
    assert noted.asked == 1


async def test_a_ledger_of_before_this_is_no_sign():
    watcher, noted = await watching(noted=Lineage())
    assert watcher.alerts == []
    assert noted.noted == HERE


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (Lineage("s1", 4), "timeline 4 has replaced 3"),
        (Lineage("s2", 1), "system s2 has replaced s1"),
    ],
)
async def test_a_replica_that_begins_after_a_failover_sees_it_by_what_the_ledger_noted(here, said):
    watcher, _ = await watching(here=here)
    (text,) = watcher.alerts
    assert said in text
    assert watcher.suspect_until == NOW


async def test_a_replica_sees_that_the_old_primary_is_back_though_that_one_noted_itself():
    watcher, noted = await watching()
    noted.here = noted.noted = Lineage("s1", 2)
    assert await watcher.observe(RESTARTED)
    assert "timeline 2 has replaced 3" in watcher.alerts[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"transactions": 880}, "the last 20 transactions that this replica has seen"),
        (
            {"transactions": 990, "met": 880},  # its other loops have written since
            "the last 20 transactions that this replica has seen",
        ),
        ({"epoch": 6}, "the ledger is at epoch 6, it was at 7"),
    ],
)
async def test_a_copy_that_lags_is_seen_although_nobody_tells_system_or_timeline(change, said):
    watcher, _ = await watching(here=Lineage(), noted=Lineage())
    assert await watcher.observe(replace(RESTARTED, **change))
    assert said in watcher.alerts[0]


async def test_what_is_not_told_this_time_is_remembered():
    watcher, noted = await watching()
    noted.here = Lineage()
    await watcher.observe(RESTARTED)
    noted.here, noted.noted = Lineage("s1", 4), Lineage()
    await watcher.observe(replace(PROBE, server=NOW + timedelta(seconds=1)))
    assert "timeline 4" in watcher.alerts[0]


async def test_a_standby_that_is_behind_is_no_sign():
    watcher, _ = await watching()
    assert not await watcher.observe(replace(PROBE, server=None, transactions=100))
    assert not await watcher.observe(PROBE)
    assert watcher.alerts == []


async def test_a_sign_is_told_once_and_not_forgotten_when_the_ledger_goes_away_again():
    watcher, noted = await watching()
    noted.away = True
    lost = replace(RESTARTED, transactions=880)
    with pytest.raises(LedgerUnavailable):
        await watcher.observe(lost)
    noted.away = False
    assert await watcher.observe(lost)
    assert not await watcher.observe(replace(lost, suspect_until=NOW))
    assert len(watcher.alerts) == 1


async def test_the_doubt_of_another_replica_counts_and_is_not_told_again():
    watcher, _ = await watching()
    assert await watcher.observe(replace(PROBE, suspect_until=NOW))
    assert watcher.suspect_until == NOW
    assert watcher.alerts == []


async def test_another_ledger_under_the_same_address_is_refused():
    watcher, _ = await watching()
    with pytest.raises(LedgerError, match="the database has ledger"):
        await watcher.observe(replace(PROBE, ledger_id=UUID(int=2)))
