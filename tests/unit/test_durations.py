from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from engine.schedules.terms import LONGEST, format_duration, parse_duration, parse_rate


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("24h", 86_400),
        ("2d", 172_800),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("1d2h3m4s5ms", 93_784.005),
        ("0s", 0),
        ("90m", 5400),
        ("007s", 7),
    ],
)
def test_a_duration_is_numbers_with_units(text, seconds):
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", "90", "s", "1.5h", "-1s", "+1s", "30m1h", "1h1h", "1w", "P1D", "٣s", "1_000s", "5 years"],
)  # fmt: skip
def test_anything_else_is_refused_and_told_how_to_write_it(text):
    with pytest.raises(ValueError, match=r"write a number and a unit \(ms, s, m, h, d\)"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("1 h", "1h"), (" 1h", "1h"), ("1h\n", "1h"), ("1H", "1h"), ("1S", "1s"), ("1min", "1m"),
     ("5 minutes", "5m"), ("90 secs", "90s"), ("rate(1 hour)", "1h"), ("2 days", "2d")],
)  # fmt: skip
def test_what_another_scheduler_would_take_is_proposed_as_it_is_written_here(text, meant):
    with pytest.raises(ValueError, match=f"^write {meant}$"):
        parse_duration(text)
    assert format_duration(parse_duration(meant)) == meant or meant == "90s"


@pytest.mark.parametrize(
    ("text", "meant"),
    [("100/min", "100/1m"), ("5 per minute", "5/1m"), ("5/h", "5/1h"), ("10 / second", "10/1s")],
)
def test_a_rate_of_another_limiter_is_proposed_as_it_is_written_here(text, meant):
    with pytest.raises(ValueError, match=f"^write {meant}$"):
        parse_rate(text)
    assert str(parse_rate(meant)) == meant


@pytest.mark.parametrize("text", ["36526d", "36525d1ms", "999999999999999d", "9" * 15 + "h"])
def test_more_than_a_hundred_years_is_refused(text):
    with pytest.raises(ValueError, match="at most 36525d"):
        parse_duration(text)


def test_the_longest_duration_is_accepted():
    assert parse_duration("36525d") == LONGEST


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (60, "1m"), (90, "1m30s"), (86_400, "1d"), (90_000, "1d1h"), (0.25, "250ms")],
)
def test_the_shortest_text_is_written(seconds, text):
    assert format_duration(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize("length", [timedelta(microseconds=1), timedelta(seconds=-1)])
def test_what_no_text_can_say_is_not_written(length):
    with pytest.raises(ValueError, match="whole number of milliseconds"):
        format_duration(length)


@given(st.integers(0, LONGEST // timedelta(milliseconds=1)))
def test_every_duration_is_read_back_as_it_was_written(milliseconds):
    length = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(length)) == length
