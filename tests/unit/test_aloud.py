"""Schedules read aloud: exact sentences, and every sentence read back to the same meaning."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import assume, given, settings, strategies as st

from engine.errors import CronInvalid
from engine.schedules import At, Cron, Interval, Schedule
from engine.schedules.describe import describe
from tests.examples import examples

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("0 2 * * *", "at 02:00 every day"),
        ("*/5 * * * *", "every 5 minutes"),
        ("30 2 * * MON-FRI", "at 02:30 on Monday to Friday"),
        # The star rule: either field is enough, unless one begins with a star.
        ("0 0 13 * FRI", "at 00:00 on day 13 of the month, and on every Friday"),
        ("0 0 */2 * FRI",
         "at 00:00 on every 2nd day from 1 to 31 of the month, only if it is Friday"),
        ("0 0 13 * */2", ("at 00:00 on day 13 of the month, only if it is "
                          "Tuesday, Thursday, Saturday or Sunday")),
        ("0 0 1-31 * FRI", "at 00:00 every day"),
        ("0 0 * * FRI", "at 00:00 on Friday"),
        ("0 0 1,L */2 MON,FRI",
         ("at 00:00 on day 1, and on the last day of January, March, May, July, September and "
          "November, and on every Monday and Friday in January, March, May, July, September and "
          "November")),
        # Stretches that pass the end of a field.
        ("0 22-4 * * *", "every hour from 22:00 to 04:00 every day"),
        ("0 22-4 * * FRI", "every hour from 00:00 to 04:00 and from 22:00 to 23:00 on Friday"),
        ("*/15 22-4 * * *", "every 15 minutes from 22:00 to 04:45 every day"),
        ("0 9 * NOV-FEB SAT,SUN", "at 09:00 on Saturday and Sunday in November to February"),
        ("0 9 * * FRI-MON", "at 09:00 on Friday to Monday"),
        # Lists and steps.
        ("15 */2 * * *", "every 2 hours from 00:15 to 22:15 every day"),
        ("0 */6 * * *", "at 00:00, 06:00, 12:00 and 18:00 every day"),
        ("*/7 * * * *", "at every 7th minute from 0 to 56 of every hour"),
        ("0 1-5,9,12 * * *", "at minute 0 of the hours 1 to 5, 9 and 12 every day"),
        ("3,17 9-17/2 * * *", "at minutes 3 and 17 of every 2nd hour from 9 to 17 every day"),
        ("30 * * * *", "at minute 30 of every hour"),
        ("* 2 * * *", "every minute from 02:00 to 02:59 every day"),
        # Seconds.
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("5/10 * * * * *", "at every 10th second from 5 to 55 of every minute"),
        ("30 */5 * * * *", "at second 30 of the minute, every 5 minutes"),
        ("15 30 2 * * *", "at 02:30:15 every day"),
        # Macros and months.
        ("@yearly", "at 00:00 on day 1 of January"),
        ("@hourly", "every hour"),
        ("@weekly", "at 00:00 on Sunday"),
        ("* * * 6 *", "every minute in June"),
        ("0 0 * JUN *", "at 00:00 every day in June"),
        # Days that depend on the month.
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 L-3 * *", "at 00:00 on the 3rd day before the last day of the month"),
        ("0 0 LW * ?", "at 00:00 on the last workday of the month"),
        ("0 0 15W * *", "at 00:00 on the workday nearest to day 15 of the month"),
        ("0 0 ? * 5L", "at 00:00 on the last Friday of the month"),
        ("0 0 * FEB MON#2", "at 00:00 on the second Monday of February"),
        ("0 0 */2,L * FRI,5L",
         ("at 00:00 on every 2nd day from 1 to 31, and on the last day of the month, "
          "each only if it is Friday or the last Friday of the month")),
    ],
)  # fmt: skip
def test_an_expression_is_read_in_plain_english(expression, sentence):
    assert describe(Cron(expression)) == sentence


def test_h_is_read_as_what_it_means_for_the_key():
    for key in ("nightly-report", "cache-sync"):
        cron = Cron("H H * * *", key=key)
        first = cron.next(NOW)
        assert first is not None
        assert describe(cron) == f"at {first:%H:%M} every day"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (Interval(300_000), "every 5 minutes, aligned to the epoch"),
        (Interval(3_600_000), "every hour, aligned to the epoch"),
        (Interval(90_000), "every 1 minute 30 seconds, aligned to the epoch"),
        (Interval(300_000, 30_000), "every 5 minutes, aligned to the epoch plus 30 seconds"),
        (Interval(300_000, -1), "every 5 minutes, aligned to the epoch minus 1 millisecond"),
        (Interval(300_000, 600_000), "every 5 minutes, aligned to the epoch"),
        (At("2027-01-01T09:00:00", timezone="America/Sao_Paulo"),
         "once, at 2027-01-01 09:00 in America/Sao_Paulo"),
        (At("2027-01-01T09:00:00.250+02:00"), "once, at 2027-01-01 07:00:00.25 UTC"),
        (At("2027-03-14T02:30:00", timezone="America/New_York"),
         "once, at 2027-03-14 03:00 in America/New_York"),
    ],
)  # fmt: skip
def test_intervals_and_moments_are_read(spec, sentence):
    assert describe(spec, now=NOW) == sentence


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"cron": "0 2 * * *", "start": "2027-01-01", "end": "2027-12-31"},
         "at 02:00 every day, from 2027-01-01 00:00, until the end of 2027-12-31"),
        ({"cron": "0 2 * * *", "end": "2027-12-31T12:00:00"},
         "at 02:00 every day, until 2027-12-31 12:00"),
        ({"everyMs": 300_000, "start": "2027-01-01", "end": "2027-12-31"},
         ("every 5 minutes, aligned to the epoch, from 2027-01-01 00:00 in America/Sao_Paulo, "
          "until the end of 2027-12-31 in America/Sao_Paulo")),
        ({"cron": "0 2 * * *", "exclude": ["SAT", "SUN", {"name": "holidays", "dates": ["MON"]}]},
         "at 02:00 every day, not on Saturday, Sunday or holidays"),
        ({"cron": "0 2 * * *",
          "exclude": ["2026-12-24..2027-01-01", "2027-02-01T12:00:00Z..2027-02-02T00:00:00Z"]},
         ("at 02:00 every day, not on 2026-12-24 to 2027-01-01, "
          "nor from 2027-02-01T12:00:00Z until 2027-02-02T00:00:00Z")),
        ({"cron": "0 2 * * *", "exclude": [f"2027-01-{day:02}" for day in range(1, 21)]},
         ("at 02:00 every day, not on 2027-01-01, 2027-01-02, 2027-01-03, 2027-01-04, "
          "2027-01-05 or 15 more")),
        ({"cron": "0 2 * * *", "spread": "15m"},
         "at 02:00 every day, each run up to 15 minutes later"),
        ({"cron": "0 2 * * *", "limit": 3}, "at 02:00 every day, at most 3 times"),
    ],
)  # fmt: skip
def test_bounds_exclusions_spread_and_limit_are_read_too(fields, sentence):
    declared = {"key": "a", "workflow": "w", "timezone": "America/Sao_Paulo", **fields}
    schedule = Schedule.from_json(declared)
    assert describe(schedule, now=NOW) == sentence


SHIFT = "When the clock goes forward, a skipped time fires at the first moment after it"
SKIP = "When the clock goes forward, a skipped time does not happen"


@pytest.mark.parametrize(
    ("expression", "timezone", "dst", "said"),
    [
        ("30 2 * * *", "America/New_York", "standard", f"{SHIFT}."),
        ("30 2 * * *", "America/New_York", {"gap": "skip"}, f"{SKIP}."),
        ("30 1 * * *", "America/New_York", "standard",
         "When the clock goes back, a repeated time fires once, at the first."),
        ("30 1 * * *", "America/New_York", {"fold": "last"},
         "When the clock goes back, a repeated time fires once, at the last."),
        ("*/5 * * * *", "America/New_York", "standard",
         f"{SKIP}; when the clock goes back, a repeated time fires each time."),
        # Lord Howe moves by half an hour, Troll by two.
        ("45 1 * * *", "Australia/Lord_Howe", "standard",
         "When the clock goes back, a repeated time fires once, at the first."),
        ("30 2 * * *", "Antarctica/Troll", "standard",
         f"{SHIFT}; when the clock goes back, a repeated time fires once, at the first."),
        # It cannot be touched: another hour, another day, or a clock that stays.
        ("30 4 * * *", "America/New_York", "standard", ""),
        ("30 2 * * MON-FRI", "America/New_York", "standard", ""),
        ("0 2 * * *", "America/Sao_Paulo", "standard", ""),
        ("*/5 * * * *", "UTC", "standard", ""),
    ],
)  # fmt: skip
def test_clock_changes_are_told_only_where_they_touch_the_schedule(expression, timezone, dst, said):
    cron = Cron(expression, timezone, dst=dst)
    assert describe(cron, now=NOW) == f"{describe(cron)}{'. ' if said else ''}{said}"


def test_a_schedule_that_ends_before_the_clock_changes_says_nothing_of_it():
    fields = {"key": "a", "workflow": "w", "cron": "30 2 * * *", "timezone": "America/New_York"}
    ended = Schedule.from_json({**fields, "end": "2027-03-13"})
    assert describe(ended, now=NOW) == "at 02:30 every day, until the end of 2027-03-13"
    touched = Schedule.from_json({**fields, "end": "2027-03-14"})
    assert describe(touched, now=NOW).endswith(f". {SHIFT}.")


def test_special_days_never_read_alike():
    days = ["L", "LW", *(f"L-{n}" for n in range(1, 31)), *(f"{n}W" for n in range(1, 32))]
    weekdays = [
        f"{day}{which}" for day in range(7) for which in ("L", *(f"#{n}" for n in range(1, 6)))
    ]
    texts = [f"0 0 {day} * *" for day in days] + [f"0 0 * * {day}" for day in weekdays]
    texts += [f"0 0 {one},{other} * *" for one, other in combinations(days[:9], 2)]
    texts += [f"0 0 {one} * {other}" for one in days[:5] for other in weekdays]
    spoken = {describe(Cron(text)): text for text in texts}
    assert len(spoken) == len(texts)


# --- reading the sentences back -------------------------------------------------------------

WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [date(2000, month, 1).strftime("%B") for month in range(1, 13)]


def numbers(text: str) -> set[int]:
    """Read ``minute 5``, ``hours 1 to 5 and 9`` or ``every 7th minute from 0 to 56``."""
    if match := re.fullmatch(r"every (\d+)\w\w \w+ from (\d+) to (\d+)", text):
        step, first, last = map(int, match.groups())
        return {*range(first, last + 1, step)}
    found: set[int] = set()
    for item in re.split(r", | and ", text.split(" ", 1)[1]):
        low, _, high = item.partition(" to ")
        found |= {*range(int(low), int(high or low) + 1)}
    return found


def circle(text: str, names: list[str]) -> set[str]:
    found: set[str] = set()
    for item in re.split(r", | and | or ", text):
        first, _, last = item.partition(" to ")
        place = names.index(first)
        found.add(first)
        while last and names[place] != last:
            place = (place + 1) % len(names)
            found.add(names[place])
    return found


def second_of(text: str) -> int:
    hour, minute, *second = map(int, text.split(":"))
    return hour * 3600 + minute * 60 + (second[0] if second else 0)


def times(text: str) -> set[int]:
    """Read the seconds of a day that the first half of a sentence names."""
    seconds = {0}
    if match := re.fullmatch(r"at (every second|.*second.*) of the minute, (.*)", text):
        all_of_them = match[1] == "every second"
        seconds, text = ({*range(60)} if all_of_them else numbers(match[1])), match[2]
    if match := re.fullmatch(r"at (.*second.*) of every minute", text):
        return {minute + second for minute in range(0, 86_400, 60) for second in numbers(match[1])}
    if match := re.fullmatch(r"at (.*) of (.*)", text):
        hours = {*range(24)} if match[2] == "every hour" else numbers(match[2].removeprefix("the "))
        minutes = {h * 3600 + m * 60 for h in hours for m in numbers(match[1])}
    elif text.startswith("at "):
        minutes = {second_of(item) for item in re.split(r", | and ", text[3:])}
    else:
        minutes = stretches(text)
    return {minute + second for minute in minutes for second in seconds}


def stretches(text: str) -> set[int]:
    match = re.fullmatch(r"every (?:(\d+) )?(second|minute|hour)s?( from .*)?", text)
    assert match, text
    step = int(match[1] or 1) * {"second": 1, "minute": 60, "hour": 3600}[match[2]]
    if not match[3]:
        return {*range(0, 86_400, step)}
    found = set()
    for first, last in re.findall(r"from ([\d:]+) to ([\d:]+)", match[3]):
        end = second_of(last) + (86_400 if second_of(last) < second_of(first) else 0)
        assert (end - second_of(first)) % step == 0, text
        found |= {at % 86_400 for at in range(second_of(first), end + 1, step)}
    return found


def days(text: str, day: date) -> bool:
    """Read the second half of a sentence, and say whether ``day`` is meant."""
    month, weekday = MONTHS[day.month - 1], WEEKDAYS[day.weekday()]
    if match := re.fullmatch(r"(?:every day)?(?: ?in (.*))?", text):
        return not match[1] or month in circle(match[1], MONTHS)
    if match := re.fullmatch(r"on (.*\d) of (.*?)(?:, (and on every|only if it is) (.*))?", text):
        in_month = match[2] == "the month" or month in circle(match[2], MONTHS)
        by_day = in_month and day.day in numbers(match[1])
        if not match[3]:
            return by_day
        by_weekday = weekday in circle(match[4].split(" in ")[0], WEEKDAYS)
        only = match[3] == "only if it is"
        return by_day and by_weekday if only else by_day or (in_month and by_weekday)
    match = re.fullmatch(r"on (.*?)(?: in (.*))?", text)
    assert match, text
    in_month = not match[2] or month in circle(match[2], MONTHS)
    return in_month and weekday in circle(match[1], WEEKDAYS)


def field(low: int, high: int) -> st.SearchStrategy[tuple[str, set[int]]]:
    """Return texts of a field together with what they mean."""
    every, value = {*range(low, high + 1)}, st.integers(low, high)

    def stepped(first: int, last: int, step: int, form: str) -> tuple[str, set[int]]:
        if form == "star":
            return f"*/{step}", {*range(low, high + 1, step)}
        first, last = sorted((first, last))
        return f"{first}-{last}/{step}", {*range(first, last + 1, step)}

    def wrapped(first: int, last: int) -> tuple[str, set[int]]:
        inside = first <= last
        return f"{first}-{last}", {
            v for v in every if (first <= v <= last if inside else v >= first or v <= last)
        }

    return st.one_of(
        st.just(("*", every)),
        st.builds(
            stepped, value, value, st.integers(1, (high - low) // 2), st.sampled_from(["", "star"])
        ),
        st.builds(wrapped, value, value),
        st.sets(value, min_size=1, max_size=8).map(lambda held: (",".join(map(str, held)), held)),
    )


@settings(max_examples=examples(200), deadline=None)
@given(field(0, 59), field(0, 59), field(0, 23))
def test_the_times_of_a_sentence_are_those_of_its_expression(second, minute, hour):
    for seconds in (("0", {0}), second):
        cron = Cron(f"{seconds[0]} {minute[0]} {hour[0]} * * *")
        told = describe(cron).removesuffix(" every day")
        meant = {h * 3600 + m * 60 + s for h in hour[1] for m in minute[1] for s in seconds[1]}
        assert times(told) == meant, told


@settings(max_examples=examples(200), deadline=None)
@given(field(1, 31), field(1, 12), field(0, 6), st.sampled_from(["30 9", "* *", "0 22-4"]))
def test_the_days_of_a_sentence_are_those_of_its_expression(day, month, weekday, time):
    try:
        cron = Cron(f"{time} {day[0]} {month[0]} {weekday[0]}")
    except CronInvalid:  # the 30th of February
        assume(False)
    told = describe(cron)
    split = re.search(r"(?: every day| on | in |$)", told)
    assert split
    both = day[0][0] == "*" or weekday[0][0] == "*"
    for n in range(0, 800, 1 if len(month[1]) < 3 else 3):
        each = date(2027, 1, 1) + timedelta(n)
        fits = each.day in day[1], each.isoweekday() % 7 in weekday[1]
        meant = each.month in month[1] and (all(fits) if both else any(fits))
        assert days(told[split.start() :].strip(), each) == meant, f"{told} on {each}"
