"""The views in docs/json.md, written from their code: ``make views``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import engine.imports.schedule_file  # noqa: F401 - it has views of its own
from engine.json_view import JsonView
from engine.views import json_schema

PAGE = Path(__file__).parents[1] / "docs/json.md"
_BEGIN, _END = "<!-- views: ", "<!-- end of views -->"
_LISTED = 8
"""Values of a closed list that are named one by one."""


def written(page: str) -> str:
    """Return the page with the part that the views make."""
    before, mark, rest = page.partition(_BEGIN)
    head, _, rest = rest.partition("\n")
    _, end, after = rest.partition(_END)
    assert mark, "the mark before the views is missing"
    assert end, "the mark behind the views is missing"
    return f"{before}{mark}{head}\n\n{chr(10).join(_sections())}\n{end}{after}"


def _sections() -> Iterator[str]:
    shapes = json_schema()["$defs"]
    for view in sorted(JsonView.every, key=lambda each: each.name):
        shape = shapes[view.name]
        of = shape["properties"]
        yield f"### {view.name}\n\n{_text(shape['description'])}\n"
        if view.base is not None:
            of = {name: of[name] for name in of if name not in shapes[view.base.name]["properties"]}
            yield f"All of [{view.base.name}](#{view.base.name.lower()}), and:\n"
        yield f"{', '.join(f'`{name}` ({_type(each)})' for name, each in of.items())}.\n"
        texts = {name: each["description"] for name, each in of.items() if "description" in each}
        yield from (f"- `{name}`: {_text(each)}" for name, each in texts.items())
        if texts:
            yield ""


def _text(sentence: str) -> str:
    return re.sub(r"``", "`", sentence).replace("|", "\\|")


def _type(shape: Mapping[str, Any]) -> str:
    """Return the type of a value in a few words."""
    if "anyOf" in shape:
        kinds = dict.fromkeys(map(_type, shape["anyOf"]))
        return " or ".join(sorted(kinds, key=lambda each: each == "null"))
    if "$ref" in shape:
        name = shape["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if words := shape.get("enum", [shape["const"]] if "const" in shape else None):
        return ", ".join(f"`{each}`" for each in words) if len(words) <= _LISTED else "word"
    if shape.get("type") == "array":
        return f"list of {_type(shape['items'])}"
    if shape.get("type") == "object":
        inner = shape.get("additionalProperties")
        return f"object of {_type(inner)}" if isinstance(inner, dict) else "object"
    return "instant" if shape.get("format") == "date-time" else str(shape.get("type", "any"))


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
