"""The code of ``sched up --reload``: imported again when a file changes, kept if it is broken."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from engine.cli.up.code_watch import CodeWatch
from engine.flow import forget_modules
from engine.runtime.code.discovery import import_user_code
from tests.waiting import eventually

GREETING = """
from engine import workflow
from {package}.words import WORD

@workflow
class ReloadedGreeting:
    word = WORD
    async def run(self, ctx) -> None: ...
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A package that no test before has imported, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    folder = tmp_path / "reloaded_code"
    folder.mkdir()
    (folder / "__init__.py").touch()
    # As long as no later one: bytecode is compared by the second and the size.
    (folder / "words.py").write_text("WORD = 'hello there, you'\n")
    (folder / "greeting.py").write_text(GREETING.format(package=folder.name))
    yield folder
    names = [name for name in sys.modules if name.partition(".")[0] == folder.name]
    forget_modules(names)
    for name in names:
        del sys.modules[name]


def write(path: Path, text: str) -> None:
    """Write as an editor does, so that no half of it is seen."""
    aside = path.with_suffix(".new")
    aside.write_text(text)
    aside.replace(path)


async def test_saving_a_module_renews_all_code_and_a_broken_one_leaves_it_as_it_is(package: Path):
    said: list[str] = []
    watch = CodeWatch(
        import_user_code([package.name]), [package.name], every=0.01,
        log=lambda text, style: said.append(f"{style or 'plain'}: {text}"),
    )  # fmt: skip
    assert {path.name for path in watch.look()} == {"__init__.py", "greeting.py", "words.py"}
    running = asyncio.create_task(watch.run())
    try:
        write(package / "words.py", "WORD = 'good morning'\n")
        await eventually(watch.renewed.is_set)
        (greeting,) = cast("list[Any]", watch.code.workflows)
        assert greeting.word == "good morning", "of a module that did not change itself"
        assert said == ["plain: words.py changed: the worker drains, and starts again with it"]

        watch.renewed.clear()
        write(package / "words.py", "WORD = nothing\n")
        await eventually(lambda: len(said) == 2)
        assert said[1].startswith("red: words.py changed and cannot be loaded; the worker goes on")
        assert "at reloaded_code/words.py:1: NameError: name 'nothing' is not defined" in said[1]
        assert not watch.renewed.is_set()
        assert watch.code.workflows == [greeting]
        restored = sys.modules[greeting.__module__]
        assert restored.ReloadedGreeting is greeting, "the modules are put back"

        another = GREETING.format(package=package.name).replace("Greeting", "Evening")
        write(package / "evening.py", another)
        write(package / "words.py", "WORD = 'good evening'\n")
        await eventually(watch.renewed.is_set)
        assert [vars(each)["word"] for each in watch.code.workflows] == ["good evening"] * 2

        watch.renewed.clear()
        (package / "greeting.py").rename(package / "hello.py")
        await eventually(watch.renewed.is_set)
        moved = {each.__module__ for each in watch.code.workflows}
        assert moved == {"reloaded_code.evening", "reloaded_code.hello"}, "its name is free"
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
