"""The documentation: no dead link, no forgotten page, and messages whose pages are at hand."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from engine.cli.app import MODULES, load, run
from engine.cli.docs import anchor, pages, read

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted(DOCS.rglob("*.md"))]
CALL = re.compile(r"(?m)(?:`|^(?:\$ )?)(?:\.venv/bin/)?sched ([a-z]+)")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    text, found = prose(page), Counter[str]()
    named = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in re.findall(r"(?m)^#+ (.+)$", text):
        name = anchor(heading)
        named.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return named


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_every_link_leads_to_a_file_and_to_a_heading_of_it(page):
    dead = []
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", prose(page))):
        path, _, section = link.partition("#")
        if link.startswith(("http://", "https://")):
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (section and section not in anchors(target)):
            dead.append(link)
    assert dead == []


def test_the_readme_takes_five_minutes_and_its_two_commands_are_those_of_ci():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert 1000 <= len(readme.split()) <= 1500
    commands = re.findall(r"(?m)^(make \w+)$", readme)
    assert commands == ["make up", "make test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{line.removeprefix('make ')}: " in makefile for line in commands)
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_index_has_every_page_once():
    index = Counter(LINK.findall((DOCS / "README.md").read_text(encoding="utf-8")))
    listed = {name: times for name, times in index.items() if not name.startswith("..")}
    assert listed == dict.fromkeys(
        [*(path.name for path in DOCS.glob("*.md") if path.name != "README.md"), "adr/"], 1
    )


def test_every_command_that_a_page_names_exists():
    named = {
        (page.name, name)
        for page in PAGES
        if page.parent != DOCS / "adr"  # a decision may name what was rejected
        for name in re.findall(
            r"(?m)(?:`|^(?:\$ )?)(?:\.venv/bin/)?sched ([a-z]+)", page.read_text("utf-8")
        )
    }
    assert {(page, name) for page, name in named if name not in MODULES} == set()


CITED = re.compile(
    r"(?m)(?:`|^(?:\$ )?)(?:\.venv/bin/)?sched ([a-z][a-z0-9-]*(?: [a-z][a-z0-9-]*)?)([^`\n#|>;]*)"
)


def unknown_options(texts: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Commands that a text cites with an option that they do not have."""
    loaded = {name: load(name) for name in MODULES}
    for place, text in texts:
        for words, rest in CITED.findall(text):
            name, _, below = words.partition(" ")
            command: Any = loaded.get(name)
            if isinstance(command, TyperGroup):
                command = command.commands.get(below)
            if command is None:
                continue
            known = {each for one in command.params for each in (*one.opts, *one.secondary_opts)}
            for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", rest):
                if option not in known | {"--help"}:
                    yield f"{place}: sched {words}: {option}"


def test_every_option_of_a_cited_command_exists():
    pages = ((page.name, page.read_text("utf-8")) for page in PAGES if page.parent.name != "adr")
    assert [*unknown_options(pages)] == []
    assert [*unknown_options(messages())] == []


@cache
def messages() -> list[tuple[str, str]]:
    """Texts of the engine that users can read: strings, and the help of commands."""
    return [*_messages()]


def _messages() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "engine").rglob("*.py")):
        module, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        if "sched " not in text and "docs/" not in text:  # nothing in it cites a command or a page
            continue
        tree = ast.parse(text)
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        bodies = [node for node in ast.walk(tree) if isinstance(node, (*documented, ast.If))]
        silent = {
            id(each.value)
            for node in bodies
            for each in node.body
            if isinstance(each, ast.Expr)
            # A command's docstring is its help.
            if not (module.startswith("engine/cli") and "command" in _decorators(node))
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in silent:
                yield module, str(node.value)


def _decorators(node: ast.AST) -> str:
    return " ".join(ast.unparse(each) for each in getattr(node, "decorator_list", ()))


def test_a_message_cites_a_page_by_the_command_that_prints_it():
    """A user of the wheel has no folder ``docs``: ``sched docs NAME`` prints the page there too."""
    texts = [*messages()]
    schema = ROOT / "engine/schedules/schedules.schema.json"
    texts.append((schema.name, schema.read_text(encoding="utf-8")))
    rules = ROOT / "deploy/monitoring/sched.rules.yml"
    texts.append((rules.name, rules.read_text(encoding="utf-8").partition("\n")[2]))
    by_path = [(name, text) for name, text in texts if re.search(r"docs/[\w/-]+\.md", text)]
    assert by_path == []
    cited = {each for _, text in texts for each in re.findall(r"`sched docs ([^`\s]+)`", text)}
    assert len(cited) >= 6, "the messages are not found any more"
    for each in cited - {"{name}"}:
        assert read(each)


def test_sched_docs_prints_a_page_a_section_and_the_list(capsys):
    assert run(["docs", "settings"]) == 0
    assert capsys.readouterr().out.rstrip() == (DOCS / "settings.md").read_text("utf-8").rstrip()
    assert run(["docs", "docs/operating.md#watch"]) == 0
    section = capsys.readouterr().out
    assert section.startswith("## Watch\n")
    assert "`SCHED_HEARTBEAT_URL`" in section
    assert "## Is all well?" not in section
    assert run(["docs"]) == 0
    assert "(settings.md)" in capsys.readouterr().out
    assert run(["docs", "adr"]) == 0
    assert "adr/0001-two-guards" in capsys.readouterr().out
    assert read("adr/1") == read("ADR 0001") == read("adr/0001-two-guards.md")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("setings", "'setings' is no page; did you mean settings?"),
        ("xyz", "'xyz' is no page; `sched docs` lists them"),
        ("operating#wach", "'wach' is no section; did you mean watch?"),
        ("../README", "'../README' is no page; did you mean README?"),
    ],
)
def test_a_page_that_is_not_there_is_answered_with_a_similar_one(given, said):
    with pytest.raises(typer.BadParameter) as caught:
        read(given)
    assert caught.value.message == said


def test_a_heading_inside_code_is_no_section():
    for name in pages():
        text = read(name)
        for section in anchors(DOCS / f"{name}.md") & set(re.findall(r"#([\w-]+)\)", text)):
            if f'<a id="{section}">' not in text and not re.search(r"-\d$", section):
                assert read(f"{name}#{section}").startswith("#")


def test_a_page_names_who_acts():
    """A worker, a replica, an operator: nobody is a subject, and nothing tells or hears."""
    vague = re.compile(r"(?i)\b(whoever|somebody|nobody|tells?|(?:is|are|be|been) told|hears?)\b")
    riddles = [
        f"{page.name}: {line[:90]}"
        for page in PAGES
        if page.parent != DOCS / "adr" and page.name != "proofs.md"  # notes of single runs
        for line in re.sub("`[^`\n]*`", "", prose(page)).splitlines()
        if vague.search(line)
    ]
    assert riddles == []
