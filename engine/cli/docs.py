"""Command ``sched docs``: pages of the documentation, from the installed package.

Separate, so that reading a page loads nothing else. Messages cite a page as ``sched docs NAME``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import click
import typer

from engine.errors import did_you_mean

commands = typer.Typer(rich_markup_mode=None)

_INDEX = "README"
_ADR = re.compile(r"adr[/ -]?0*(\d+)", re.IGNORECASE)


def folder() -> Path:
    """Return the folder of the pages: that of the wheel, or of a checkout."""
    engine = Path(__file__).parents[1]
    packaged = engine / "docs"
    return packaged if packaged.is_dir() else engine.parent / "docs"


def pages() -> list[str]:
    """Return the names of all pages, as ``schedules`` or ``adr/0001-two-guards``."""
    root = folder()
    found = (path.relative_to(root).with_suffix("") for path in root.rglob("*.md"))
    return sorted(path.as_posix() for path in found)


def _complete(incomplete: str) -> list[str]:
    return [name for name in pages() if name.startswith(incomplete) and name != _INDEX]


@commands.command()
def docs(
    page: Annotated[
        str,
        typer.Argument(
            metavar="PAGE",
            help="A page, as schedules; a section, as operating#watch; a decision, as adr/9.",
            autocompletion=_complete,
        ),
    ] = _INDEX,
) -> None:
    """Print a page of the documentation. Without PAGE, the list of pages.

    The pages belong to the installed version, and are read without a network.
    """
    click.echo_via_pager(read(page))


def read(page: str) -> str:
    """Return the text of a page, or of one section of it.

    Raises:
        typer.BadParameter: there is no such page or section; the message names a similar one.
    """
    wanted, _, section = page.partition("#")
    name = wanted.removeprefix("docs/").removesuffix(".md")
    known = pages()
    if name.rstrip("/") == "adr":
        decisions = (each for each in known if each.startswith("adr/"))
        return "".join(f"{each}: {_title(each)}\n" for each in decisions)
    if adr := _ADR.fullmatch(name):
        name = next((each for each in known if each.startswith(f"adr/{adr[1]:0>4}-")), name)
    if name not in known:
        raise _unknown("page", wanted, known, "`sched docs`")
    text = (folder() / f"{name}.md").read_text(encoding="utf-8")
    if not section:
        return text
    sections = _sections(text)
    if section not in sections:
        raise _unknown("section", section, list(sections), f"`sched docs {name}`")
    return sections[section]


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub derives it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def _sections(text: str) -> dict[str, str]:
    """Return the sections by their anchors, each with the sections below it."""
    plain = re.sub(r"(?ms)^```.*?^```", lambda code: re.sub("(?m)^#", "=", code[0]), text)
    heads = list(re.finditer(r"(?m)^(#+) (.+)$", plain))
    found = {}
    for number, head in enumerate(heads):
        below = (each for each in heads[number + 1 :] if len(each[1]) <= len(head[1]))
        end = next(below, None)
        found[anchor(head[2])] = text[head.start() : end.start() if end else None].rstrip() + "\n"
    return found


def _title(page: str) -> str:
    with (folder() / f"{page}.md").open(encoding="utf-8") as file:
        return file.readline().strip("# \n")


def _unknown(what: str, given: str, known: list[str], where: str) -> typer.BadParameter:
    hint = did_you_mean(given, known, f"{where} lists them")
    return typer.BadParameter(f"'{given}' is no {what}; {hint}", param_hint="PAGE")
