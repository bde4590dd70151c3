"""When a clock is wrong, and when it only answered slowly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from engine.runtime.clock import ClockWatch

BEGIN = datetime(2026, 11, 21, 10, 30, tzinfo=UTC)
MOST = timedelta(seconds=5)


class Clock:
    """A clock that is read once a second, over a line that may be slow."""

    def __init__(self) -> None:
        self.watch, self.passed, self.ahead = ClockWatch(MOST), 0.0, 0.0

    def looks(self, seconds: float, *, rate: float = 1.0) -> None:
        for _ in range(round(seconds)):
            self.passed += 1
            self.ahead += rate - 1
            self.look()

    def look(self, *, before: float = 0.001, after: float = 0.001) -> None:
        said = BEGIN + timedelta(seconds=self.passed + self.ahead)
        self.watch.observe(said, self.passed - before, self.passed + after)
        self.passed += after

    def held(self) -> bool:
        return self.watch.holds


@pytest.mark.parametrize("step", [3600.0, -3600.0, 5.1, -5.1])
def test_a_clock_that_was_set_holds_until_it_has_agreed_for_a_minute(step: float):
    clock = Clock()
    clock.looks(100)
    assert not clock.held()
    clock.ahead += step
    clock.looks(1)
    assert clock.held()
    assert clock.watch.skew == pytest.approx(step, abs=0.1)
    clock.looks(58)
    assert clock.held()
    clock.looks(5)
    assert not clock.held()


def test_a_step_during_the_minute_begins_it_anew():
    clock = Clock()
    clock.looks(10)
    clock.ahead += 3600
    clock.looks(50)
    clock.ahead -= 3600
    clock.looks(50)
    assert clock.held()
    clock.looks(15)
    assert not clock.held()


def test_a_clock_that_was_set_while_nobody_could_ask_is_noticed():
    clock = Clock()
    clock.looks(10)
    clock.passed += 600  # the database was away
    clock.ahead += 3600
    clock.looks(1)
    assert clock.held()


def test_an_outage_alone_is_no_skew():
    clock = Clock()
    clock.looks(10)
    clock.passed += 600
    clock.looks(10)
    assert not clock.held()


def test_a_clock_that_goes_half_as_fast_again_is_noticed():
    clock = Clock()
    clock.looks(20, rate=1.5)
    assert clock.held()
    clock.looks(120, rate=1.5)
    assert clock.held(), "it never agreed"


def test_a_clock_that_is_corrected_slowly_is_followed():
    clock = Clock()
    clock.looks(3600, rate=1.0005)  # as fast as NTP slews
    assert not clock.held()


def test_a_small_step_is_put_up_with():
    clock = Clock()
    clock.looks(10)
    clock.ahead += 4.9
    clock.looks(90)
    assert not clock.held()


delay = st.floats(0, 60)


@given(lines=st.lists(st.tuples(delay, delay), min_size=2, max_size=30))
def test_a_slow_answer_is_never_skew(lines: list[tuple[float, float]]):
    clock = Clock()
    for before, after in lines:
        clock.passed += before + 0.01
        clock.look(before=before, after=after)
        assert not clock.held()


@given(
    lines=st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=20),
    step=st.floats(8, 1e6) | st.floats(-1e6, -8),
)
def test_no_line_of_a_second_hides_a_step_of_eight(lines: list[tuple[float, float]], step: float):
    clock = Clock()
    for before, after in lines:
        clock.passed += before + 0.01
        clock.look(before=before, after=after)
    clock.ahead += step
    clock.passed += 1
    clock.look(before=lines[0][0], after=lines[0][1])
    assert clock.held()
    assert (clock.watch.skew > 0) == (step > 0)
