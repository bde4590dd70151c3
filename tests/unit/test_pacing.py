"""How the janitor finds out how much one transaction may take on."""

from __future__ import annotations

import pytest

from engine.runtime.retention.compaction import AIM, BatchSizer


def after(pace: BatchSizer, seconds_each: float, transactions: int) -> BatchSizer:
    """The pace after so many full transactions on a ledger that takes so long for each row."""
    for _ in range(transactions):
        pace.took(pace.amount, pace.amount * seconds_each)
    return pace


@pytest.mark.parametrize("seconds_each", [0.0002, 0.001, 0.004])
def test_a_transaction_comes_to_last_as_long_as_it_should(seconds_each):
    pace = after(BatchSizer(500, most=2000), seconds_each, 20)
    assert pace.amount * seconds_each == pytest.approx(AIM, rel=0.05)


def test_a_ledger_that_became_slow_is_asked_for_less_at_once():
    pace = after(BatchSizer(500, most=2000), 0.00001, 20)
    assert pace.amount == 2000
    pace.took(2000, 2000 * 0.001)
    assert pace.amount * 0.001 <= AIM


def test_one_slow_moment_is_made_up_for_little_by_little():
    pace = BatchSizer(1000, most=2000)
    pace.took(1000, 10)
    slowed = pace.amount
    pace.took(slowed, 0.001)
    assert slowed < pace.amount < 2 * slowed


def test_transactions_with_little_to_do_allow_no_larger_ones():
    pace = BatchSizer(500, most=2000)
    for _ in range(100):
        pace.took(1, 0.001)
    assert pace.amount == 500


def test_however_slow_a_ledger_is_its_rounds_go_on():
    assert after(BatchSizer(500, most=2000), 60, 10).amount >= 1
