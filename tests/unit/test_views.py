"""The views: one JSON of each thing, whose names and types are those that its schema says."""

from __future__ import annotations

import json
import re
import shlex
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import to_json

from engine.cli.app import MODULES  # noqa: F401 - every command is known
from engine.events.messages import _FIRE
from engine.json_view import JsonView, as_json, json_text
from engine.schedules import Schedule, exact_text
from engine.views import json_schema
from engine.views.answers import FIRE, NAMED, NEXT_FIRES
from tests import json_page
from tests.unit.test_recorded_commands import RECORDED

_SNAKE = re.compile(r"[a-z]+_[a-z]")
_COMMAND = re.compile(r"^\$ sched (.*)$", re.MULTILINE)


def test_a_name_is_that_of_the_attribute_in_camel_case():
    for view in JsonView.every:
        for name in (*view.paths, *view.given):
            assert to_camel(name) in view.model.model_json_schema()["properties"], (view.name, name)
    renamed = {
        f"{view.name}.{name}": path
        for view in JsonView.every
        for name, path in view.paths.items()
        if name != path.rpartition(".")[2]
    }
    assert {name: path for name, path in renamed.items() if to_camel(name) == to_camel(path)} == {}


def test_files_and_answers_have_names_by_the_same_rule():
    assert {each.alias for each in Schedule.model_fields.values()} == {
        to_camel(name) for name in Schedule.model_fields
    }


def test_no_name_of_an_answer_is_in_snake_case():
    for name, view in json_schema()["$defs"].items():
        assert [each for each in view["properties"] if _SNAKE.match(each)] == [], name


def test_an_event_has_of_its_fire_what_the_view_of_that_has():
    assert {*_FIRE.paths} <= {*FIRE.paths}


def test_every_document_that_a_command_prints_is_of_a_view():
    """What the recorded commands print, and nothing more or less, is what a view says."""
    kinds = [view.model for view in JsonView.every]
    texts = _COMMAND.split(RECORDED.read_text(encoding="utf-8"))
    commands = zip(texts[1::2], texts[2::2], strict=True)
    unknown = [
        command
        for command, output in commands
        if "--json" in shlex.split(command)
        and not all(_is_known(d, kinds) for d in _documents(output))
    ]
    assert unknown == []


def _documents(output: str) -> list[Any]:
    begin = min((at for at in (output.find("\n{"), output.find("\n[")) if at >= 0), default=-1)
    if begin < 0:
        return []
    found, _ = json.JSONDecoder().raw_decode(output[begin + 1 :])
    return found if isinstance(found, list) else [found]


def _is_known(document: Any, kinds: list[Any]) -> bool:
    is_error = isinstance(document, dict) and document.keys() == {"error"}
    return is_error or any(_fits(document, kind) for kind in kinds)


def _fits(document: Any, kind: Any) -> bool:
    if not isinstance(document, dict) or document.keys() != _names(kind):
        return False
    try:
        read = TypeAdapter(kind).validate_python(document)
    except ValidationError:
        return False
    return bool(read.model_dump(mode="json", by_alias=True) == document)


def _names(kind: Any) -> set[str]:
    return {each.alias for each in kind.model_fields.values()}


@pytest.mark.parametrize("microseconds", [0, 1, 40_000, 123_456])
def test_both_writers_of_json_write_an_instant_alike(microseconds):
    at = datetime(2026, 11, 21, 12, 0, 30, microseconds, UTC)
    document = NEXT_FIRES(key="k", timezone=None, state="active", fire_times=[at])
    assert json.loads(to_json(document)) == json.loads(json_text(document))
    assert json.loads(json_text(document))["fireTimes"] == [exact_text(at)]
    assert datetime.fromisoformat(exact_text(at.astimezone(timezone(timedelta(hours=3))))) == at


def test_a_record_without_a_view_is_refused():
    class Unknown:
        pass

    with pytest.raises(TypeError, match="Unknown"):
        as_json(Unknown())
    with pytest.raises(TypeError, match="has no colour"):
        NAMED(key="k", colour="red")


def test_the_page_of_views_is_what_their_code_writes():
    page = json_page.PAGE.read_text(encoding="utf-8")
    assert page == json_page.written(page), "`make views` writes it"
