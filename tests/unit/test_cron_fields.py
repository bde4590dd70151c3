"""The grammar of cron expressions: what is read, and what is refused with which hint."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from engine.errors import CronInvalid
from engine.schedules import Schedule
from engine.schedules.timing.cron_parser import Special, parse
from engine.schedules.timing.croniter_check import disagreement, unjudged
from engine.schedules.timing.spec import Cron


def values(mask: int) -> list[int]:
    return [value for value in range(64) if mask >> value & 1]


def test_five_fields_are_minute_hour_day_month_weekday_at_second_zero():
    fields = parse("1 2 3 4 5")
    assert values(fields.seconds) == [0]
    assert values(fields.minutes) == [1]
    assert values(fields.hours) == [2]
    assert values(fields.calendar.days) == [3]
    assert values(fields.calendar.months) == [4]
    assert values(fields.calendar.weekdays) == [5]


def test_a_sixth_field_leads_with_seconds():
    fields = parse("30 1 2 3 4 5")
    assert values(fields.seconds) == [30]
    assert values(fields.minutes) == [1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", list(range(60))),
        ("*/15", [0, 15, 30, 45]),
        ("*/60", [0]),
        ("5", [5]),
        ("05", [5]),
        ("5-5", [5]),
        ("10-14", [10, 11, 12, 13, 14]),
        ("10-20/5", [10, 15, 20]),
        ("50/4", [50, 54, 58]),
        ("59/15", [59]),
        ("5/60", [5]),
        ("0-59/30", [0, 30]),
        ("58-1", [0, 1, 58, 59]),
        ("50-10/15", [5, 50]),
        ("1,3,3,2", [1, 2, 3]),
        ("*/30,7", [0, 7, 30]),
    ],
)
def test_a_minute_field_is_read(text, expected):
    assert values(parse(f"{text} * * * *").minutes) == expected


def test_hours_may_wrap_around_midnight():
    assert values(parse("0 22-4 * * *").hours) == [0, 1, 2, 3, 4, 22, 23]


def test_a_wrapping_range_steps_across_its_wrap():
    assert values(parse("0 23-3/2 * * *").hours) == [1, 3, 23]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MON-FRI", [1, 2, 3, 4, 5]),
        ("mon,Wed", [1, 3]),
        ("FRI-MON", [0, 1, 5, 6]),
        ("7", [0]),
        ("0", [0]),
        ("5-7", [0, 5, 6]),
        ("7-2", [0, 1, 2]),
        ("7-7", [0]),
        ("0-7", [0, 1, 2, 3, 4, 5, 6]),
        ("1-7/2", [0, 1, 3, 5]),
        ("1/2", [1, 3, 5]),
        ("7/3", [0, 3, 6]),
        ("*/7", [0]),
        ("SAT-SUN", [0, 6]),
        ("SUN-SAT", [0, 1, 2, 3, 4, 5, 6]),
        ("7/2", [0, 2, 4, 6]),
        ("7-0", [0]),
        ("5-7/2", [0, 5]),
        ("FRI-MON/2", [0, 5]),
        ("4-2/3", [0, 4]),
    ],
)
def test_a_weekday_field_counts_from_sunday_and_seven_is_sunday_too(text, expected):
    assert values(parse(f"0 0 * * {text}").calendar.weekdays) == expected


def test_months_have_names_in_any_case():
    assert values(parse("0 0 1 jan,JUL,Dec *").calendar.months) == [1, 7, 12]
    assert values(parse("0 0 1 NOV-FEB *").calendar.months) == [1, 2, 11, 12]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("L", Special("L")),
        ("l-3", Special("L", 3)),
        ("LW", Special("LW")),
        ("15W", Special("W", 15)),
    ],
)
def test_special_days_are_read(text, expected):
    calendar = parse(f"0 0 {text} * *").calendar
    assert (calendar.days, calendar.day_specials) == (0, (expected,))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5L", Special("nL", 5)),
        ("FRIL", Special("nL", 5)),
        ("7L", Special("nL", 0)),
        ("MON#2", Special("#", 1, 2)),
        ("0#5", Special("#", 0, 5)),
    ],
)
def test_special_weekdays_are_read(text, expected):
    calendar = parse(f"0 0 * * {text}").calendar
    assert (calendar.weekdays, calendar.weekday_specials) == (0, (expected,))


@pytest.mark.parametrize(
    ("macro", "meaning"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        (" @hourly ", "0 * * * *"),
    ],
)
def test_a_macro_means_its_expression(macro, meaning):
    assert parse(macro) == parse(meaning)


@pytest.mark.parametrize(
    ("expression", "both"),
    [
        ("0 0 1 * MON", False),
        ("0 0 * * MON", True),
        ("0 0 */2 * MON", True),
        ("0 0 1 * */2", True),
        ("0 0 1 * ?", True),
        ("0 0 ? * MON", True),
        ("0 0 1-31 * MON", False),
        ("0 0 5,* * MON", False),
        ("0 0 *,5 * MON", True),
        ("0 0 1 * *,MON", True),
    ],
)
def test_the_star_rule_looks_at_the_first_character_of_day_and_weekday(expression, both):
    assert parse(expression).calendar.both is both


@pytest.mark.parametrize(
    ("expression", "wildcard"),
    [
        ("* * * * *", True),
        ("*/5 2 * * *", True),
        ("30 * * * *", True),
        ("30 */2 * * *", True),
        ("30 2 * * *", False),
        ("0-59 0-23 * * *", False),
        ("* 30 2 * * *", False),
        ("H 2 * * *", False),
        ("*/60 2 * * *", True),
        ("0-59/5 2 * * *", False),
        ("*,5 2 * * *", True),
        ("5,* 2 * * *", False),
        ("H/15 2 * * *", False),
        ("H/15 * * * *", True),
    ],
)
def test_a_schedule_is_wildcard_when_minute_or_hour_starts_with_a_star(expression, wildcard):
    assert parse(expression).wildcard is wildcard


# --- H --------------------------------------------------------------------------------------


def test_h_is_the_same_for_a_key_in_every_process_for_ever():
    fields = parse("H H(0-5) H * *", "nightly-report")
    assert values(fields.minutes) == [40]
    assert values(fields.hours) == [2]
    assert values(fields.calendar.days) == [27]


def test_h_spreads_keys_over_the_whole_field():
    seen = {values(parse("H * * * *", f"key-{n}").minutes)[0] for n in range(1000)}
    assert seen == set(range(60))


def test_h_with_a_step_keeps_the_distance_and_hashes_the_start():
    for n in range(50):
        minutes = values(parse("H/15 * * * *", f"key-{n}").minutes)
        assert len(minutes) == 4
        assert [b - a for a, b in pairwise(minutes)] == [15, 15, 15]


def test_h_with_a_range_stays_inside_it():
    for n in range(200):
        assert set(values(parse("H(10-19) * * * *", f"k{n}").minutes)) <= set(range(10, 20))
        assert set(values(parse("H(10-19)/5 * * * *", f"k{n}").minutes)) <= set(range(10, 20))


def test_h_as_a_day_exists_in_every_month():
    assert max(values(parse("0 0 H * *", f"k{n}").calendar.days)[0] for n in range(500)) == 28


def test_h_as_a_weekday_may_count_to_seven():
    keys = [f"k{n}" for n in range(200)]
    seen = {values(parse("0 0 * * H(1-7)", key).calendar.weekdays)[0] for key in keys}
    assert seen == {0, 1, 2, 3, 4, 5, 6}
    assert {values(parse("0 0 * * H(6-7)", key).calendar.weekdays)[0] for key in keys} == {0, 6}


def test_a_key_changes_nothing_where_there_is_no_h():
    assert parse("0 2 * * *", "a") == parse("0 2 * * *", "b")


@pytest.mark.parametrize(
    "text", ["0 2 * * *", "  0\t2  *   * *\n", "0 2 * * sun-SAT", "00 02 * * ?"]
)
def test_blanks_case_and_leading_zeros_change_nothing(text):
    assert parse(text) == parse("0 2 * * *")


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("60 * * * *", ["minute field", '"60"', "0-59"]),
        ("* 24 * * *", ["hour field", '"24"', "0-23"]),
        ("* * 0 * *", ["day field", '"0"', "1-31"]),
        ("* * 32 * *", ["day field", '"32"', "1-31"]),
        ("* * * 0 *", ["month field", '"0"', "1-12 or JAN-DEC"]),
        ("* * * 13 *", ["month field", '"13"']),
        ("* * * * 8", ["weekday field", '"8"', "0-7 or SUN-SAT"]),
        ("60 * * * * *", ["second field", '"60"']),
        ("*/0 * * * *", ["minute field", '"*/0"', "step of zero"]),
        ("*/61 * * * *", ["minute field", '"*/61"', "60 values", "every:"]),
        ("0 */25 * * *", ["hour field", '"*/25"', "24 values"]),
        ("0 0 * * */8", ["weekday field", '"*/8"', "7 values"]),
        ("* * * * * * *", ["seven fields", "second minute hour day month weekday"]),
        ("0 0 12 1 1 ? 2027", ["seven fields", "at:"]),
        ("* * * *", ["4 fields", "minute hour day month weekday"]),
        ("", ["0 fields"]),
        ("R * * * *", ["minute field", '"R"', "write H"]),
        ("R(0-29) * * * *", ["minute field", "random", "write H"]),
        ("? * * * *", ["minute field", '"?"', "day and weekday"]),
        ("1,,2 * * * *", ["minute field", "empty", "comma"]),
        ("-5 * * * *", ["minute field", '"-5"', "cannot be read"]),
        ("1--5 * * * *", ["minute field", "cannot be read"]),
        ("5-* * * * *", ["minute field", "cannot be read"]),
        ("1.5 * * * *", ["minute field", "cannot be read"]),
        ("\u0665 * * * *", ["character '\\u0665'", "plain digits"]),
        ("0\u00a02 * * *", ["character '\\xa0'", "blanks"]),
        ("0 2 * * fr\u0131", ["character '\\u0131'", "letters"]),
        ("0 0 ?,5 * *", ["day field", '"?" is not ? alone', "as the whole field"]),
        ("0 0 * * ?/2", ["weekday field", '"?/2" is not ? alone']),
        ("0 0 1 MARCH *", ["month field", '"MARCH" is not a name', "write MAR"]),
        ("0 0 L-3W * *", ["day field", '"L-3W" cannot be read']),
        ("0 0 30W 2 *", ["never fire"]),
        ("0 0 31 2 */2", ["never fire"]),
        ("L * * * *", ["minute field", "day or weekday"]),
        ("0 0 MON * *", ["day field", '"MON"', "not a name"]),
        ("0 0 1 FOO *", ["month field", '"FOO"', "JAN-DEC"]),
        ("0 0 * * L", ["weekday field", "5L"]),
        ("0 0 * * MON#6", ["weekday field", '"MON#6"', "#1 to #5"]),
        ("0 0 * * MON#0", ["weekday field", "#1 to #5"]),
        ("0 0 * * 9L", ["weekday field", '"9L"']),
        ("0 0 32W * *", ["day field", '"32W"']),
        ("0 0 L-31 * *", ["day field", "L-1 to L-30"]),
        ("0 0 L-0 * *", ["day field", "L-1 to L-30"]),
        ("0 0 1-5W * *", ["day field", "cannot be read"]),
        ("0 0 *? * *", ["day field", "is not ? alone"]),
        ("H(50-70) * * * *", ["minute field", "out of range"]),
        ("H(20-10) * * * *", ["minute field", "a <= b"]),
        ("@every 5m", ["@every 5m", "write every: 5m"]),
        ("@every", ["write every: 15m"]),
        ("cron(0 12 * * ? *)", ["of EventBridge", 'write cron: "0 12 * * ?"']),
        ("cron(0 12 ? * 2-6 *)", ['"0 12 ? * 2-6", with weekdays by name: there 1 is Sunday']),
        ("rate(5 minutes)", ["of EventBridge", "write every: 5m"]),
        ("rate(1 hour)", ["write every: 1h"]),
        ("@reboot", ["@reboot"]),
        (
            "CRON_TZ=America/New_York 0 2 * * *",
            ["names a timezone", 'write timezone: America/New_York and cron: "0 2 * * *"'],
        ),
        ("@fortnightly", ["@fortnightly", "@weekly"]),
        ("0 0 30 2 *", ["day, month and weekday", "never fire", "L for the last day"]),
        ("0 0 31 4,6,9,11 *", ["never fire"]),
        ("0 0 31W 2-2 *", ["never fire"]),
        ("0 0 L-30 2 *", ["never fire"]),
        ("1," * 600 + "1 * * * *", ["characters", "1000"]),
    ],
)
def test_what_is_refused_names_the_field_the_value_and_the_hint(expression, names):
    with pytest.raises(CronInvalid) as caught:
        Cron(expression)
    assert caught.value.code == "SCHEDULE_CRON_INVALID"
    for name in names:
        assert name in str(caught.value)


def test_an_expression_that_is_not_text_is_refused():
    with pytest.raises(CronInvalid, match="is not text"):
        Cron(5)  # type: ignore[arg-type]  # what a YAML file may hold


def test_days_that_exist_only_sometimes_are_accepted():
    for expression in ("0 0 29 2 *", "0 0 */29 2 1", "0 0 * 2 MON#5", "0 0 31 * *", "0 0 29W 2 *"):
        Cron(expression)


@given(st.text(alphabet="0123456789*/-,?LWHR#()@ MONJA", max_size=30))
def test_any_text_is_either_read_or_refused_with_our_own_error(text):
    try:
        Cron(text)
    except CronInvalid as error:
        assert error.hint  # noqa: PT017 - both outcomes are right


# --- the second opinion ---------------------------------------------------------------------

JUDGED = [
    "* * * * *",
    "*/15 9-17 * * MON-FRI",
    "0 22-4 * * *",
    "0 0 * * FRI-MON",
    "0 0 * * 5-7",
    "0 0 * * 1/2",
    "59/15 * * * *",
    "0-59 0-23 1-31 1-12 *",
    "5,10 1,2 ? jan,dec sun",
    "*/10 30 2 * * *",
    "@weekly",
    "0 0 L * *",
    "0 0 1,L * *",
    "0 0 15W * *",
    "0 0 * * 5L",
    "0 0 * * FRIL",
    "0 0 * * 7L",
    "0 0 * * MON#2",
    "0 0 31 * SUN",
]
UNJUDGED = [
    "H 2 * * *",
    "0 0 LW * *",
    "0 0 L-3 * *",
    "0 0 1,15W * *",
    "5-5 * * * *",
    "0 0 * * 0-7",
    "0 23-3/2 * * *",
    "0 0 * * 1-7/2",
    "0 0 * * FRI-MON/2",
    "0 0 * * MON#1,TUE",
]


@pytest.mark.parametrize("expression", JUDGED)
def test_croniter_reads_the_same_fields(expression):
    assert unjudged(expression) is None
    assert disagreement(expression) is None


@pytest.mark.parametrize("expression", UNJUDGED)
def test_croniter_is_not_asked_where_it_is_known_to_be_wrong(expression):
    assert unjudged(expression)
    assert disagreement(expression) is None


def test_a_difference_is_reported_in_words(monkeypatch):
    from engine.schedules.timing import croniter_check as second_opinion

    monkeypatch.setattr(second_opinion, "unjudged", lambda _: None)
    disagreement.cache_clear()
    reason = disagreement("5-5 2 * * *")
    disagreement.cache_clear()
    assert reason is not None
    assert reason.startswith("minute field: we read 5, croniter reads 0 1 2")


def test_a_refusal_by_croniter_is_reported(monkeypatch):
    from engine.schedules.timing import croniter_check as second_opinion

    monkeypatch.setattr(second_opinion, "unjudged", lambda _: None)
    disagreement.cache_clear()
    reason = disagreement("0 0 L-3 * *")
    disagreement.cache_clear()
    assert reason is not None
    assert reason.startswith("croniter refuses it")


number = st.integers(0, 23).map(str)
item = st.one_of(
    number,
    st.tuples(number, number).map("-".join),
    st.tuples(number, st.integers(1, 23).map(str)).map("/".join),
    st.integers(1, 23).map(lambda n: f"*/{n}"),
    st.just("*"),
)
field = st.lists(item, min_size=1, max_size=3).map(",".join)


@given(minute=field, hour=field)
def test_croniter_agrees_on_every_list_of_plain_items(minute, hour):
    assert disagreement(f"{minute} {hour} * * *") is None


@pytest.mark.parametrize(
    ("peers", "ours"),
    [
        ("0 0 * * FRI#L", "0 0 * * FRIL"),
        ("0 0 * * 5#l", "0 0 * * 5L"),
        ("0 0 * * MON#2,7#L", "0 0 * * MON#2,7L"),
        ("0 000 * * *", "0 00 * * *"),
        ("*/0005 0-007 00000001 012 *", "*/05 0-07 01 12 *"),
        ("0 0 0015W * 0005#0002", "0 0 15W * 5#02"),
    ],
)
def test_spellings_of_peers_are_read_and_kept_as_every_replica_reads_them(peers, ours):
    assert parse(peers) == parse(ours)
    assert Schedule.from_json({"key": "k", "workflow": "w", "cron": peers}).cron == ours
    assert disagreement(peers) is None


@pytest.mark.parametrize("kept", ["0 02 * * *", "05 00 01 1 0", "0 0 * * 5L", "*/15 * * * *"])
def test_what_every_replica_reads_is_kept_as_it_was_written(kept):
    assert Schedule.from_json({"key": "k", "workflow": "w", "cron": kept}).cron == kept


@pytest.mark.parametrize("wrong", ["0 0 * * #L", "0 0 * * 5#LL", "0 0 5#L * *", "0 0 * * 8#L"])
def test_a_last_weekday_of_no_weekday_is_refused(wrong):
    with pytest.raises(CronInvalid, match="field"):
        parse(wrong)


def test_without_croniter_one_sentence_says_what_to_install(tmp_path):
    (tmp_path / "schedules.yaml").write_text(
        'schedules: [{key: k, workflow: w, cron: "0 2 * * *"}]'
    )
    code = (
        "import sys; sys.modules['croniter'] = None; from engine.cli.app import run;"
        " sys.exit(run(['check', 'schedules.yaml']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith("sched: SCHEDULE_ENGINE_ERROR: croniter is not installed")
    assert ended.stderr.count("\n") == 1
