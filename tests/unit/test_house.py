"""The shape of ``engine/``: what a newcomer can rely on wherever they open it."""

import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.house import House

ROOT = Path(__file__).parents[2]

SHORT = 80
"""Lines below which a module has to say why it is separate."""
LONG = 600
"""Lines above which it has to be divided by section comments."""
DOORS = {
    # What is forbidden in a workflow is for checks of code that does not run.
    "engine.flow": {"restrictions"},
    # Statements, and what is no record.
    "engine.ledger": {"postgres", "floors"},
    # What is done with schedules; the door has what they are.
    "engine.schedules": {"planner", "loader", "diff", "describe", "simulation"},
    "engine.schedules.planner": set(),
}
"""Rooms with a door, each with its parts that are imported by themselves."""


@pytest.fixture(scope="module")
def house() -> House:
    return House.read()


def test_a_module_is_a_capability_and_not_a_fragment(house):
    assert house.lines / len(house.modules) >= 200


def test_a_module_leads_to_few_others(house):
    assert len(house.edges) / len(house.modules) <= 5.0


def test_a_room_with_a_door_is_entered_by_it(house):
    """What is behind the door can then be cut differently, and nobody outside changes."""
    around = [
        f"{name} imports {target}"
        for name, target in sorted(house.edges)
        for door, apart in DOORS.items()
        if target.startswith(f"{door}.") and not f"{name}.".startswith(f"{door}.")
        if target.removeprefix(f"{door}.").partition(".")[0] not in apart
    ]
    assert around == []


def test_no_module_needs_itself(house):
    assert house.cycles() == []


def test_a_function_fits_on_a_screen(house):
    assert house.long_functions() == []


def test_the_name_of_a_class_or_a_type_means_one_thing(house):
    """`Timing` has a twin: what runs inside the sandbox loads no ledger."""
    assert house.types_named_twice() == ["Timing"]


def test_a_module_name_means_one_thing_in_its_room(house):
    names: Counter[tuple[str, str]] = Counter()
    for name, module in house.modules.items():
        room, *inner = name.removeprefix("engine.").split(".")
        if inner and not module.is_package:
            names[room, inner[-1]] += 1
    assert [place for place, times in names.items() if times > 1] == []


def test_a_short_module_says_why_it_is_separate(house):
    unexplained = [
        f"{name}: {module.lines} lines"
        for name, module in house.modules.items()
        if module.lines < SHORT and not module.is_package
        if not re.search(r"[Ss]eparate", module.docstring)
    ]
    assert unexplained == []


def test_lint_rules_have_few_exceptions(house):
    """A rule that does not fit a room is ignored there by pyproject.toml, with one reason."""
    assert sum(module.text.count("# noqa") for module in house.modules.values()) <= 140


def test_private_names_stay_in_their_module(house):
    assert house.private_imports() == []


def test_a_docstring_names_its_subject(house):
    riddles = [
        f"{module}: {text.splitlines()[0]}"
        for module, text in house.docstrings()
        if re.match(r"(What|Says|Who|Whoever|Tells|Hears|Learns)\b", text)
    ]
    assert riddles == []


def test_a_docstring_says_who_acts(house):
    """A worker, a replica, the ledger or an operator acts; nothing hears, tells or is told."""
    vague = re.compile(r"(?i)\b(whoever|(some|any|no)body|tells?|(is|are|be|been) told|hears?)\b")
    riddles = [
        f"{module}: {line.strip()}"
        for module, text in house.docstrings()
        for line in re.sub("``[^`]*``", "", text).splitlines()
        if vague.search(line)
    ]
    assert riddles == []


def test_a_name_is_no_metaphor(house):
    """Things are emitted, sent, returned or reported (docs/glossary.md)."""
    metaphor = re.compile(r"(?i)(^|_)(tell|told|say|said|hear|heard|speak|aloud|kin|trouble)(_|$)")
    names = {
        f"{module.name}.{name}"
        for module in house.modules.values()
        for name in (
            *module.classes(),
            *(full.rpartition(".")[2] for full, _ in module.functions()),
        )
        if metaphor.search(name)
    }
    assert names == set()


def test_a_long_module_has_sections(house):
    unordered = [
        f"{name}: {module.lines} lines"
        for name, module in house.modules.items()
        if module.lines > LONG and not re.search("^ *# --- ", module.text, re.MULTILINE)
    ]
    assert unordered == []


def test_no_decision_reads_a_sentence(house):
    """Reasons are sentences for people; the code reads their ``reason_code``."""
    reading = [
        f"{name}: {found}"
        for name, module in house.modules.items()
        for found in re.findall(r"reason[^\n]*\.startswith\([^\n]*", module.text)
    ]
    assert reading == []


def test_each_module_of_a_room_with_floors_is_on_one(house):
    """A module that no layer names may import what it likes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = {
        module.strip()
        for contract in project["tool"]["importlinter"]["contracts"]
        for layer in contract.get("layers", ())
        for module in re.split("[|:]", layer)
    }
    rooms = ("engine", "engine.schedules", "engine.runtime")
    inside = {name for name in house.modules if name.rpartition(".")[0] in rooms}
    assert inside - named == set()


def test_the_map_names_what_is_there(house):
    """Files of docs/architecture.md, by the end of their path, and what its table looks up."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    files = {path.as_posix() for path in (ROOT / "engine").rglob("*.*")}
    named = set(re.findall(r"`([\w/]+\.(?:py|sql))`", page))
    assert {name for name in named if not any(f"/{name}" in file for file in files)} == set()
    for name, module in re.findall(r"`([\w.]+)` in `([\w/]+)\.py`", page):
        text = house.modules[f"engine.{module.replace('/', '.')}"].text
        for part in name.split("."):
            assert re.search(rf"(class|def) {part}\b", text), f"{name} is not in {module}.py"


@pytest.mark.parametrize(
    ("way", "most"),
    [("of one window", 51), ("of `sched pause`", 18), ("of a step with an undo", 14)],
)
def test_a_way_through_the_house_has_as_many_files_as_it_says(way, most):
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.partition(f"## The way {way}\n")[2].partition("\n## ")[0]
    said = re.search(r"(\d+) files", section)
    assert said
    # What is beside the way is named in sentences that begin so.
    listed = re.sub(r"Beside them[^\n]*", "", section)
    files = set(re.findall(r"`([\w/]+\.py)`", listed))
    assert len(files) == int(said[1]) <= most, sorted(files)
