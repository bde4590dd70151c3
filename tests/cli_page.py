"""The commands in docs/cli.md, written from their code: ``make cli``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.cli.app import EXAMPLES, GROUPS, load

PAGE = Path(__file__).parents[1] / "docs/cli.md"
_BEGIN, _END = "<!-- commands: ", "<!-- end of commands -->"
_EVERYWHERE = {"--help", "--json", "--data-dir"}
"""Options that the page explains once."""


def written(page: str) -> str:
    """Return the page with the part that the commands make."""
    before, mark, rest = page.partition(_BEGIN)
    head, _, rest = rest.partition("\n")
    _, end, after = rest.partition(_END)
    assert mark, "the mark before the commands is missing"
    assert end, "the mark behind the commands is missing"
    return f"{before}{mark}{head}\n\n{chr(10).join(_sections())}\n{end}{after}"


def _sections() -> Iterator[str]:
    for heading, group in GROUPS.items():
        yield f"## {heading}\n"
        for name in group:
            command = load(name)
            inner: dict[str, Any] = getattr(command, "commands", {})
            yield from _command(name, command)
            for each, of_group in inner.items():
                yield from _command(f"{name} {each}", of_group)


def _command(path: str, command: Any) -> Iterator[str]:
    """Yield the lines about one command: its text, its options, and examples."""
    context = command.context_class(command, info_name=f"sched {path}")
    yield f"### sched {path}\n"
    yield f"`{' '.join(command.get_usage(context).split()).removeprefix('Usage: ')}`\n"
    yield f"{' '.join(command.help.split(chr(10) + chr(10))[0].split())}\n"
    for paragraph in command.help.split("\n\n")[1:]:
        yield f"{' '.join(paragraph.split())}\n"
    rows = [*_options(command, context)]
    if rows:
        yield "| | |\n|---|---|"
        yield from rows
        yield ""
    examples = "\n".join(EXAMPLES[path])
    yield f"```sh\n{examples}\n```\n"


def _options(command: Any, context: Any) -> Iterator[str]:
    for each in command.get_params(context):
        record = each.get_help_record(context)
        if record is None or _EVERYWHERE & {*each.opts}:
            continue
        name, text = (part.replace("|", "\\|").strip() for part in record)
        name = re.sub(r" <[^>]*>$", "", name)  # the type of an argument
        yield f"| `{name}` | {' '.join(text.split())} |"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
