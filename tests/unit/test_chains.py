"""`after` and `needs` in a file: what is understood, and what is refused, with place and hint."""

from __future__ import annotations

import pytest

from engine.errors import Problem, ScheduleFileError
from engine.schedules import Schedule, load_schedules
from engine.schedules.loader.loader import NamedText, load_several
from engine.schedules.loader.relations import fire_times
from engine.schedules.terms import Rule

NIGHTLY = 'cron: "0 2 * * *"'


def file_of(*schedules: str) -> str:
    return "schedules:\n" + "\n".join(f"- {{workflow: w, {each}}}" for each in schedules)


def loaded(*schedules: str) -> dict[str, Schedule]:
    return {each.key: each for each in load_schedules(file_of(*schedules)).schedules}


def problems(*schedules: str) -> tuple[Problem, ...]:
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules(file_of(*schedules), expectations=True)
    return caught.value.problems


def said(problem: Problem) -> str:
    return f"{problem.line}:{problem.code}: {problem.message}; {problem.hint}"


def test_after_means_that_the_same_window_of_the_parent_completed():
    found = loaded(f"key: a, {NIGHTLY}", f"key: b, {NIGHTLY}, after: {{schedule: a}}")
    assert found["b"].follows == (Rule("a", "success", "same"),)
    assert found["a"].follows == ()


def test_after_and_needs_together_ask_for_all_of_it():
    found = loaded(
        f"key: a, {NIGHTLY}",
        f"key: b, {NIGHTLY}",
        f"key: c, {NIGHTLY}, after: {{schedule: a, when: always, window: latest}}, needs: [b]",
    )
    assert found["c"].follows == (Rule("a", "always", "latest"), Rule("b"))


def test_a_schedule_without_times_takes_those_of_its_parent_and_says_so_itself():
    found = loaded(
        "key: c, needs: [b]",
        "key: b, after: {schedule: a, when: failure}",
        'key: a, cron: "30 2 * * *", timezone: America/Sao_Paulo, dst: {gap: skip},'
        " end: 2030-01-01",
    )
    assert [*found] == ["c", "b", "a"], "the order of the file"
    dump = found["c"].to_json()
    assert dump["cron"] == "30 2 * * *"
    assert dump["timezone"] == "America/Sao_Paulo"
    assert dump["end"] == "2030-01-01"
    assert fire_times(found["b"]) == fire_times(found["a"])
    assert Schedule.from_json(dump) == found["c"]


def test_what_is_taken_over_is_not_changed_by_the_defaults_of_the_file():
    text = "defaults: {timezone: America/Sao_Paulo}\n" + file_of(
        f"key: a, {NIGHTLY}, timezone: UTC", "key: b, needs: [a]"
    )
    assert {each.timezone for each in load_schedules(text).schedules} == {"UTC"}


def test_a_definition_with_parents_has_a_digest_of_its_own():
    plain, success, failure = (
        loaded(f"key: a, {NIGHTLY}", f"key: b, {NIGHTLY}{more}")["b"]
        for more in ("", ", after: {schedule: a}", ", after: {schedule: a, when: failure}")
    )
    assert len({plain.digest, success.digest, failure.digest}) == 3
    explicit = loaded(
        f"key: a, {NIGHTLY}",
        f"key: b, {NIGHTLY}, after: {{schedule: a, when: success, window: same}}",
    )
    assert explicit["b"].digest == success.digest, "what equals a default changes nothing"


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        ("everyMs: 60000", "everyMs: 60000, offsetMs: 120000"),
        (NIGHTLY, 'cron: "0  2 * * *", timezone: UTC'),
        ('cron: "0 2 * * thu"', 'cron: "0 2 * * THU"'),
        ('at: "2030-01-01T09:00:00Z"', 'at: "2030-01-01T06:00:00-03:00"'),
        ("everyMs: 60000", "everyMs: 60000, exclude: [SAT], spread: 10s"),
    ],
)
def test_times_that_are_the_same_may_be_written_in_two_ways(parent, child):
    assert loaded(f"key: a, {parent}", f"key: b, {child}, needs: [a]")


@pytest.mark.parametrize(
    ("parent", "child", "message"),
    [
        (NIGHTLY, 'cron: "0 3 * * *"', "b fires '0 3 * * *' UTC, its parent a '0 2 * * *' UTC"),
        (NIGHTLY, f"{NIGHTLY}, timezone: Asia/Tokyo", "Asia/Tokyo, its parent a '0 2 * * *' UTC"),
        (NIGHTLY, f"{NIGHTLY}, dst: {{gap: skip}}", "dst skip/first, its parent a"),
        (NIGHTLY, f"{NIGHTLY}, end: 2030-01-01", "end 2030-01-01, its parent a"),
        (NIGHTLY, "everyMs: 86400000", "b fires every 1d, its parent a '0 2 * * *' UTC"),
        ("everyMs: 60000", "everyMs: 60000, offsetMs: 1000", "every 1m offset 1s, its parent a"),
    ],
)
def test_the_same_window_needs_the_same_times_and_both_are_named(parent, child, message):
    (problem,) = problems(f"key: a, {parent}", f"key: b, {child}, needs: [a]")
    assert problem.code == "SCHEDULE_PARENT_TIMES_DIFFER"
    assert message in problem.message
    assert (problem.line, problem.key, problem.value) == (3, "b", "a")
    assert loaded(f"key: a, {parent}", f"key: b, {child}, after: {{schedule: a, window: latest}}")


def test_a_hashed_time_is_another_for_each_key():
    (problem,) = problems('key: a, cron: "H 2 * * *"', "key: b, needs: [a]")
    assert "instead of H" in problem.hint


def test_every_mistake_between_schedules_is_told_at_once_with_its_place_and_a_hint():
    found = problems(
        f"key: nightly-report, {NIGHTLY}",
        f"key: b, {NIGHTLY}, needs: [nightly-reprot]",
        f"key: c, {NIGHTLY}, after: {{schedule: c}}",
        'key: d, at: "2030-01-01T00:00:00Z"',
        f"key: e, {NIGHTLY}, after: {{schedule: d, window: latest}}",
        f"key: f, {NIGHTLY}, after: {{schedule: b}}, needs: [b]",
        "key: x, after: {schedule: y}",
        "key: y, needs: [z]",
        "key: z, after: {schedule: x, when: failed}",
    )
    assert "\n".join(map(said, found)) == (
        "3:SCHEDULE_PARENT_UNKNOWN: no schedule has the key nightly-reprot;"
        " did you mean nightly-report?\n"
        "4:SCHEDULE_PARENT_CYCLE: the schedule waits for itself; name another, or remove it\n"
        "6:SCHEDULE_PARENT_TIMES_DIFFER: d fires once, and e again and again;"
        " name a schedule that continues\n"
        "7:SCHEDULE_FIELD_INVALID: b is in after and in needs; keep one of the two\n"
        "10:SCHEDULE_FIELD_INVALID: after.when is 'failed'; write success, failure or always"
    )


def test_a_cycle_is_told_once_with_its_path():
    (problem,) = problems(
        "key: x, after: {schedule: y}", "key: y, needs: [z]", "key: z, needs: [x]"
    )
    assert problem.message == "the schedules wait for each other: x → y → z → x"
    assert (problem.line, problem.key) == (4, "z")


def test_a_cycle_with_times_of_its_own_is_one_too():
    found = problems(
        f"key: a, {NIGHTLY}",
        f"key: x, {NIGHTLY}, after: {{schedule: a}}, needs: [y]",
        f"key: y, {NIGHTLY}, after: {{schedule: x, window: latest}}",
    )
    assert [problem.message for problem in found] == [
        "the schedules wait for each other: x → y → x"
    ]


def test_one_that_was_to_have_its_parents_times_is_told_what_is_wrong_and_no_more():
    for fields in ("after: a", "needs: a"):
        found = problems(f"key: a, {NIGHTLY}", f"key: b, {fields}")
        assert [problem.code for problem in found] == ["SCHEDULE_FIELD_INVALID"]


@pytest.mark.parametrize(
    ("fields", "hint"),
    [
        ("after: a", "write {schedule: a}"),
        ("after: {schedule: A}", "use 1 to 200 of"),
        ("after: {schedule: a, window: newest}", "write same or latest"),
        ("after: {schedul: a}", "did you mean schedule?"),
        ("after: {when: success}", "add schedule: nightly-extract"),
        ("needs: a", "write [a]"),
        ("needs: []", "name a schedule"),
        ("needs: [a, a]", "name it once"),
        ("needs: [{}]", "use 1 to 200 of"),
    ],
)
def test_what_is_no_dependency_is_refused_with_what_to_write_instead(fields, hint):
    found = problems(f"key: a, {NIGHTLY}", f"key: b, {NIGHTLY}, {fields}")
    assert any(hint in problem.hint for problem in found)
    assert {problem.line for problem in found} == {3}


def test_defaults_have_no_parents():
    with pytest.raises(ScheduleFileError, match="after is not a field of defaults"):
        load_schedules("defaults: {after: {schedule: a}}\n" + file_of(f"key: a, {NIGHTLY}"))


def several(*texts: str) -> dict[str, Schedule]:
    named = [NamedText(f"{number}.yaml", text) for number, text in enumerate(texts)]
    file = load_several(named, "folder", open_ics=lambda _: str)
    return {each.key: each for each in file.schedules}


def test_a_parent_may_be_in_another_file_of_the_project():
    child = f"key: b, {NIGHTLY}, needs: [a]"
    assert several(file_of(f"key: a, {NIGHTLY}"), file_of(child))["b"].follows


def told(*texts: str) -> list[str]:
    with pytest.raises(ScheduleFileError) as caught:
        several(*texts)
    return [f"{each.file}:{said(each)}" for each in caught.value.problems]


def test_times_are_not_taken_from_another_file():
    (problem,) = told(file_of(f"key: a, {NIGHTLY}"), file_of("key: b, needs: [a]"))
    assert problem == (
        "1.yaml:2:SCHEDULE_KIND_INVALID: the schedule does not say when it fires, and its parent a"
        " is in another file; give one of every, everyMs, cron and at"
    )


def test_misspelt_parents_of_several_files_are_told_beside_all_other_problems():
    broken = 'key: broken, cron: "0 2 * *"'
    child = f"key: child, {NIGHTLY}, needs: [broken, nightyl]"
    first, second = told(
        file_of(f"key: nightly, {NIGHTLY}", broken),
        file_of(child, "key: b, after: {schedule: childd}"),
    )[1:]
    unknown = "SCHEDULE_PARENT_UNKNOWN: no schedule has the key"
    assert first == f"1.yaml:2:{unknown} nightyl; did you mean nightly?"
    assert second == f"1.yaml:3:{unknown} childd; did you mean child?"


def test_a_parent_that_may_be_in_what_cannot_be_read_is_no_mistake_yet():
    child = file_of(f"key: b, {NIGHTLY}, needs: [a]")
    torn = child + f"\n- {{key: c, needs: [\n- {{key: a, {NIGHTLY}}}"
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules(torn)
    assert [each.code for each in caught.value.problems] == ["SCHEDULE_YAML_INVALID"]
    (problem,) = told(child, torn.replace("key: b", "key: d"))
    assert problem.startswith("1.yaml:4:SCHEDULE_YAML_INVALID")


def test_problems_between_files_of_json_have_their_places():
    child = '{"schedules": [\n{"key": "b", "workflow": "noop", "every": "5m", "needs": ["z"]}]}'
    (problem,) = told(file_of(f"key: a, {NIGHTLY}"), child)
    assert problem.startswith("1.yaml:2:SCHEDULE_PARENT_UNKNOWN")


def test_a_parent_that_is_wrong_itself_is_the_only_mistake():
    (problem,) = problems('key: a, cron: "0 25 * * *"', "key: b, needs: [a]", "key: c, needs: [b]")
    assert problem.key == "a"


OF_TIMES = (
    "spread: 10m",
    "timezone: America/Sao_Paulo",
    "dst: {gap: skip}",
    "offsetMs: 7200000",
    "start: 2030-01-01",
    "start: 2030-01-02, end: 2030-01-01",
    'expect: [{on: 2030-01-01, fires: ["02:00"]}]',
)


@pytest.mark.parametrize("fields", OF_TIMES)
def test_what_depends_on_unknown_times_hides_no_misspelt_parent(fields):
    (problem,) = problems(
        f"key: nightly, {NIGHTLY}", f"key: b, after: {{schedule: nightyl}}, {fields}"
    )
    assert said(problem) == (
        "3:SCHEDULE_PARENT_UNKNOWN: no schedule has the key nightyl; did you mean nightly?"
    )


@pytest.mark.parametrize("fields", OF_TIMES)
def test_what_depends_on_the_times_of_a_wrong_parent_is_no_mistake_yet(fields):
    (problem,) = problems('key: a, cron: "0 25 * * *"', f"key: b, needs: [a], {fields}")
    assert problem.key == "a"


def test_defaults_that_depend_on_unknown_times_hide_no_misspelt_parent():
    text = "defaults: {spread: 10m, timezone: America/Sao_Paulo, exclude: [SAT]}\n" + file_of(
        f"key: nightly, {NIGHTLY}", "key: b, after: {schedule: nightyl}"
    )
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules(text)
    assert [each.code for each in caught.value.problems] == ["SCHEDULE_PARENT_UNKNOWN"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("spread: soon", "spread is 'soon'"),
        ("timezone: America/Sao_Palo", 'timezone "America/Sao_Palo" is not an IANA name'),
        ("end: 2030-13-01", "end 2030-13-01 is no day"),
        ("limit: 0", "limit is 0"),
        ("retry: {attempts: 0}", "attempts"),
    ],
)
def test_what_is_wrong_at_any_times_is_told_of_unknown_ones_too(fields, message):
    (problem,) = problems(f"key: a, {NIGHTLY}", f"key: b, needs: [aa], {fields}")
    assert message in problem.message
    assert problem.key == "b"


@pytest.mark.parametrize("parent", ["a", "aa"])
def test_a_misspelt_field_for_its_times_is_not_given_together_with_inherited_ones(parent):
    (problem,) = problems(f"key: a, {NIGHTLY}", f"key: b, needs: [{parent}], evry: 5m")
    assert said(problem) == (
        "3:SCHEDULE_FIELD_UNKNOWN: evry is not a field of a schedule; did you mean every?"
    )
