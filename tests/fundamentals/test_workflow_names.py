"""Names and versions: which classes can be workflows, what they are called, who knows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from temporalio.workflow import unsafe

from engine import Context, workflow
from engine.flow import decorator, definition_of, registered_workflows, version_key
from tests.fundamentals.samples.constructed import Constructed

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Person:
    name: str


@workflow(name="welcome", version="1")
class Welcome:
    async def run(self, ctx: Context, person: Person) -> str:
        return f"Welcome, {person.name}"


@workflow
class ArchiveHTTPLogs:
    async def run(self, ctx: Context) -> None: ...


class Copy:
    async def run(self, ctx: Context) -> None: ...


def test_a_workflow_is_known_to_temporal_as_name_at_version():
    definition = definition_of(Welcome)
    assert definition is not None
    assert definition.type == "welcome@1"
    assert registered_workflows()["welcome@1"].cls is Welcome
    assert (definition.input_type, definition.result_type) == (Person, str)


def test_without_a_name_it_is_the_class_name_in_kebab_case_at_version_1():
    assert registered_workflows()["archive-http-logs@1"].cls is ArchiveHTTPLogs


def test_the_sandboxes_copies_are_never_registered():
    before = registered_workflows()
    unsafe._set_in_sandbox(True)
    try:
        workflow(name="welcome", version="1")(type("Welcome", (), {"run": Copy.run}))
    finally:
        unsafe._set_in_sandbox(False)
    assert registered_workflows() == before


def test_two_classes_cannot_share_a_name_and_version():
    with pytest.raises(ValueError, match=r"two workflows are called 'welcome@1'.*Welcome and"):
        workflow(name="welcome", version="1")(type("Other", (), {"run": Copy.run}))


def test_importing_the_same_class_again_replaces_the_first():
    again = type("Welcome", (), {"run": Copy.run, "__module__": Welcome.__module__})
    workflow(name="welcome", version="1")(again)
    try:
        assert registered_workflows()["welcome@1"].cls is again
    finally:
        definition = definition_of(Welcome)
        assert definition is not None
        decorator._registry.add("welcome@1", Welcome, definition)


def test_versions_are_compared_as_numbers():
    assert sorted(["1.10", "2", "1.9", "1"], key=version_key) == ["1", "1.9", "1.10", "2"]


@pytest.mark.parametrize("version", ["", "v1", "1.", ".1", "01", "1.02", "1 ", "-1", "1a", "٣"])
def test_a_version_that_is_not_dotted_integers_is_refused(version: str):
    with pytest.raises(ValueError, match="is not a version: write integers parted by dots"):
        workflow(name="x", version=version)(type("X", (), {"run": Copy.run}))


def test_a_version_is_text():
    with pytest.raises(TypeError, match='a version is text, such as "1"'):
        workflow(name="x", version=1)(type("X", (), {"run": Copy.run}))  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["", "daily@1", "a b", "-x", "ä", "x" * 201])
def test_a_name_that_would_blur_the_temporal_type_is_refused(name: str):
    with pytest.raises(ValueError, match="cannot name X"):
        workflow(name=name)(type("X", (), {"run": Copy.run}))


class WithoutRun: ...


class WithSyncRun:
    def run(self, ctx: Context) -> None: ...


class WithoutContext:
    async def run(self) -> None: ...


class WithInputAlone:
    async def run(self, year: int) -> None: ...


class WithTwoInputs:
    async def run(self, ctx: Context, year: int, month: int) -> None: ...


class WithKeywordInput:
    async def run(self, ctx: Context, *, year: int) -> None: ...


class WithHiddenType:
    async def run(self, ctx: Context, amount: Decimal) -> None: ...


class WithService:
    def __init__(self, mailer: object, *, retries: int, quiet: bool = False) -> None: ...

    async def run(self, ctx: Context) -> None: ...


class Outer:
    class Inner(Copy): ...


@pytest.mark.parametrize(
    ("cls", "sentence"),
    [
        (WithoutRun, "WithoutRun needs `async def run.*; it has none"),
        (WithSyncRun, "WithSyncRun needs `async def run.*; its run is not an async method"),
        (WithoutContext, r"has to be `run\(self, ctx\)` or"),
        (WithInputAlone, "is given a Context first, and its input after that"),
        (WithTwoInputs, "put several values into a dataclass"),
        (WithKeywordInput, r"has to be `run\(self, ctx\)` or"),
        (WithHiddenType, "'Decimal' is not defined.*not under TYPE_CHECKING"),
        (
            WithService,
            "needs mailer, retries, but a run is created without arguments.*is an @resource",
        ),
        (Outer.Inner, "Outer.Inner is not at the top level of its module"),
        (Welcome, "Welcome is already a workflow"),
        ("welcome", "@workflow marks a class"),
    ],
)
def test_a_class_that_cannot_be_a_workflow_is_refused_with_a_sentence(cls: type, sentence: str):
    with pytest.raises(TypeError, match=sentence):
        workflow(name="refused")(cls)
    assert "refused@1" not in registered_workflows()


def test_a_class_that_can_be_made_without_arguments_is_a_workflow():
    assert registered_workflows()["constructed@1"].cls is Constructed
    assert Constructed(retries=5).retries == 5
