"""The JSON Schema that editors read: never stricter than the loader, and not blind either."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # it has none
import pytest
from hypothesis import example, given, settings, strategies as st
from pydantic.alias_generators import to_camel

from engine.cli.app import run
from engine.errors import ScheduleFileError
from engine.schedules import load_schedules
from engine.schedules.loader.json_schema import json_schema, json_schema_text
from engine.schedules.loader.yaml_reader import read_yaml
from engine.schedules.model import DEFAULTS, FIELDS, CatchUp, Expectation, Schedule
from engine.schedules.rules import Trait, fields_with
from engine.schedules.timing.zones import zone_names
from tests.examples import examples
from tests.unit.schedule_files import GOOD

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "engine" / "schedules" / "schedules.schema.json"
JUDGE = jsonschema.Draft7Validator(json_schema())
ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//tests//EN
BEGIN:VEVENT
UID:1
DTSTART;VALUE=DATE:20261225
SUMMARY:off
END:VEVENT
END:VCALENDAR
"""


def is_loaded(text: str) -> bool:
    try:
        load_schedules(text, open_ics=lambda _: ICS)
    except ScheduleFileError:
        return False
    return True


def complaints(value: Any) -> list[str]:
    return [error.message for error in JUDGE.iter_errors(value)]


def value_of(text: str) -> Any:
    root = read_yaml(text).root
    assert root is not None
    return root.plain()


def one(**fields: Any) -> dict[str, Any]:
    return {"schedules": [{"key": "a", "workflow": "b", **fields}]}


def test_the_shipped_schema_is_that_of_the_models(capsys):
    assert run(["schema"]) == 0
    printed = capsys.readouterr().out
    assert printed == json_schema_text()
    assert SHIPPED.read_text(encoding="utf-8") == printed, (
        "write it anew: sched schema > engine/schedules/schedules.schema.json"
    )


def test_it_is_a_schema_of_draft_7():
    jsonschema.Draft7Validator.check_schema(json_schema())


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        (Schedule.model_fields, ("definitions", "schedule")),
        (DEFAULTS, ("properties", "defaults")),
        (CatchUp.model_fields, ("definitions", "schedule", "properties", "catchUp")),
        (Expectation.model_fields, ("definitions", "schedule", "properties", "expect", "items")),
    ],
)
def test_every_field_has_a_shape_and_a_sentence(fields, path):
    place = json_schema()
    for step in path:
        place = place[step]
    assert set(place["properties"]) == {to_camel(name) for name in fields}
    for name, shape in place["properties"].items():
        assert shape["description"].endswith("."), name
        assert len(shape["description"]) <= 100, name
        assert name == "input" or shape.keys() > {"description"}, f"{name} may be anything"


def test_the_page_has_a_row_for_every_field_and_names_those_of_defaults():
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE)
    assert FIELDS.keys() <= {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    (listed,) = re.findall(r"^`defaults` can contain (.*?)\.", page, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(DEFAULTS)
    (merged,) = re.findall(r"no limit\. (.*?) are merged name by name", page)
    assert sorted(re.findall(r"`(\w+)`", merged)) == sorted(fields_with(Schedule, Trait.MERGED))


def test_every_example_in_it_is_accepted_by_it():
    def judge(shape: Any) -> None:
        if isinstance(shape, dict):
            for example in shape.get("examples", ()):
                jsonschema.validate(example, shape)
            for part in shape.values():
                judge(part)
        elif isinstance(shape, list):
            for part in shape:
                judge(part)

    judge(json_schema())


def test_every_zone_of_the_pinned_rules_is_accepted():
    for name in zone_names():
        assert complaints(one(cron="0 2 * * *", timezone=name)) == []


def written_in_the_repository() -> list[str]:
    texts = [GOOD]
    texts += [
        path.read_text(encoding="utf-8")
        for folder in (ROOT, ROOT / "engine", ROOT / "docs", ROOT / "deploy", ROOT / "benchmarks")
        for path in (folder.glob if folder == ROOT else folder.rglob)("*.yaml")
    ]
    for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")):
        blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
        texts += blocks
    return [text for text in texts if is_loaded(text)]


def test_every_schedule_file_and_block_of_the_repository_is_accepted():
    texts = written_in_the_repository()
    assert len(texts) >= 6
    for text in texts:
        assert complaints(value_of(text)) == [], text


def test_a_bare_list_is_a_file_too():
    (schedule,) = one(everyMs=1000)["schedules"]
    assert complaints([schedule]) == []
    assert complaints([]) != []


MISTAKES = [
    one(every_ms=300000),
    one(),
    one(everyMs=1000, cron="0 2 * * *"),
    one(everyMs="10s"),
    one(everyMs=10),
    one(cron="0 2 * *"),
    one(cron="* * * * * * *"),
    one(cron=None),
    one(at="tomorrow"),
    one(at="2027-01-01"),
    one(cron="0 2 * * *", offsetMs=1000),
    one(everyMs=1000, dst="standard"),
    one(at="2027-01-01T00:00:00Z", exclude=["SAT"]),
    one(cron="0 2 * * *", exclude=["SATURDAY"]),
    one(cron="0 2 * * *", exclude=["2026-12-25..25"]),
    one(cron="0 2 * * *", exclude="SAT"),
    one(cron="0 2 * * *", timezone="sao paulo"),
    one(cron="0 2 * * *", grace=90),
    one(cron="0 2 * * *", grace="90 s"),
    one(cron="0 2 * * *", enabled="yes"),
    one(cron="0 2 * * *", overlap="sometimes"),
    one(cron="0 2 * * *", catchUp="latest"),
    one(cron="0 2 * * *", catchUp={"polcy": "latest"}),
    one(cron="0 2 * * *", expect=[{"on": "2027-03-14", "fires": "03:00"}]),
    one(cron="0 2 * * *", dst={"gap": "last"}),
    one(cron="0 2 * * *", metadata={"a": {}}),
    one(cron="0 2 * * *", description=None),
    one(everyMs=1000, key="Bad Key"),
    one(everyMs=1000, workflow=""),
    one(everyMs=1000, taskQueue=" sched"),
    {"schedules": [{"workflow": "b", "everyMs": 1000}]},
    {"schedules": []},
    {"jobs": one(everyMs=1000)["schedules"]},
    {**one(everyMs=1000), "version": 2},
    {**one(everyMs=1000), "defaults": {"key": "a"}},
    {**one(everyMs=1000), "calendars": {"2026": []}},
    {**one(everyMs=1000), "queues": {"a": 1}},
]


@pytest.mark.parametrize("value", MISTAKES, ids=lambda value: json.dumps(value)[:70])
def test_a_typical_mistake_is_underlined_and_it_is_one(value):
    assert complaints(value) != []
    assert not is_loaded(json.dumps(value))


VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 1.0, 1.5, 1000, 10**13, "", " ", "a", "A", "latest", "now", "Now",
     "90s", "1h30m", "m", "30m1h", "SAT", "sat", "Sun", "SATURDAY", "2026-12-25", "2026-02-30",
     "2026-12-24..2026-12-25", "2026-12-25..2026-12-24",
     "2026-12-24T22:00:00Z..2026-12-25T04:00:00Z",
     "2027-01-01T09:00:00Z", "2027-01-01 09:00", "2027-01-01T09:00:00.5+01:00", "03:00", "24:00",
     "0 2 * * *", "*  * * * *", "@daily", "@Daily", "0 0 30 2 *", "holidays", "UTC", "EST",
     "America/Sao_Paulo", "standard", "a@1", "a@b", "line\nbreak", "é", [], {}, ["SAT"], [None],
     ["holidays", "2026-12-25"], {"policy": "latest"}, {"window": "1h", "x": 1}, {"a": 1},
]  # fmt: skip
JUNK = st.sampled_from(VALUES)
ITEMS = st.one_of(
    JUNK,
    st.fixed_dictionaries({"name": JUNK, "dates": st.lists(JUNK, max_size=2)}),
    st.fixed_dictionaries({"on": JUNK, "fires": st.lists(JUNK, max_size=2)}),
)
GOOD_VALUES: dict[str, list[Any]] = {
    "workflow": ["b", "b@1.2"],
    "everyMs": [1000, 300000],
    "offsetMs": [0, -5],
    "cron": ["0 2 * * *", "@hourly", "30 0 2 * * MON"],
    "at": ["2027-01-01T09:00:00Z", "2027-01-01T09:00"],
    "timezone": ["UTC", "Europe/Paris"],
    "start": ["2026-01-01"],
    "end": ["2027-01-01T00:00:00Z"],
    "dst": ["standard", {"gap": "skip"}, {}],
    "exclude": [["SAT", "sUn"], ["holidays"], [], [{"name": "x", "dates": ["2026-01-01"]}]],
    "spread": ["1s"],
    "expect": [[{"on": "2027-03-14", "fires": ["03:00"]}]],
    "catchUp": [{"policy": "latest"}, {}, {"window": "1d"}],
    "metadata": [{"a": None, "b": 1.5}],
    "calendars": [{"holidays": ["2026-12-25"]}, {"holidays": {"ics": "a.ics"}}, None],
    "defaults": [{}, None, {"timezone": "UTC"}, {"exclude": ["SAT"]}],
    "queues": [None, {}, {"emails": {"concurrency": 5, "rate": "100/1m"}}, {"a": {"rate": "1/1s"}}],
    "revision": [0, 7],
    "project": ["p"],
    "version": [1, 1.0],
}


def some(name: str) -> st.SearchStrategy[Any]:
    good = GOOD_VALUES.get(name)
    junk = st.one_of(JUNK, st.lists(ITEMS, max_size=2), st.dictionaries(KNOWN, JUNK, max_size=2))
    return st.sampled_from(good) | junk if good else junk


KNOWN = st.sampled_from(["holidays", "ics", "policy", "window", "gap", "fold", "key", "timezone"])
SCHEDULES = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["a", "a", "b-1", "Bad", 7]),
        "workflow": some("workflow"),
    },
    optional={to_camel(name): some(to_camel(name)) for name in Schedule.model_fields
              if name not in {"key", "workflow"}} | {"every_ms": JUNK, "typo": JUNK},
)  # fmt: skip
WHENS: list[dict[str, Any]] = [
    {"everyMs": 1000},
    {"cron": "0 2 * * *"},
    {"at": "2027-01-01T09:00:00Z"},
    {"at": "2027-01-01T09:00:00", "timezone": "UTC"},
]
SIMPLE = st.builds(
    lambda when, more: {"key": "a", "workflow": "b", **when, **more},
    st.sampled_from(WHENS),
    st.sampled_from(sorted({to_camel(name) for name in Schedule.model_fields})).flatmap(
        lambda name: some(name).map(lambda value: {name: value})
    ),
)
FILES = st.fixed_dictionaries(
    {"schedules": st.one_of(st.lists(SIMPLE | SCHEDULES, min_size=1, max_size=1), JUNK)},
    optional={
        name: some(name)
        for name in ("version", "project", "revision", "calendars", "defaults", "queues", "typo")
    },
)


@pytest.mark.parametrize(
    "when",
    [*WHENS[:1], *(pytest.param(each, marks=pytest.mark.prove) for each in WHENS[1:])],
    ids=str,
)
@pytest.mark.parametrize("name", sorted(map(to_camel, Schedule.model_fields)))
def test_no_value_of_a_field_is_refused_that_the_loader_takes(name, when):
    for value in GOOD_VALUES.get(name, []) + VALUES:
        file = one(**{**when, name: value})
        if said := complaints(file):
            assert not is_loaded(json.dumps(file)), said


@pytest.mark.parametrize(
    "name", ["version", "project", "revision", "calendars", "defaults", "queues"]
)
def test_no_value_of_the_file_is_refused_that_the_loader_takes(name):
    for value in GOOD_VALUES[name] + VALUES:
        file = {**one(everyMs=1000), name: value}
        if said := complaints(file):
            assert not is_loaded(json.dumps(file)), said


@settings(max_examples=examples(200), deadline=None)
@given(
    st.one_of(
        SIMPLE.map(lambda schedule: {"schedules": [schedule]}), FILES, SIMPLE.map(lambda x: [x])
    )
)
@example(one(everyMs=1000, exclude=[{"name": None, "dates": []}]))
def test_whatever_the_schema_refuses_the_loader_refuses_too(value):
    if said := complaints(value):
        assert not is_loaded(json.dumps(value)), said


def test_a_json_file_may_name_its_schema():
    named = {"$schema": "./schedules.schema.json", **one(everyMs=1000)}
    assert is_loaded(json.dumps(named))
    assert not complaints(named)
    assert not is_loaded(json.dumps({**named, "$schema": 7}))
