"""Schedule file of an import: YAML with the source and each difference as comments, or JSON.

What all entries share is written once, below ``defaults``. The texts are those that the loader of
schedule files reads back as the same values.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from engine.imports.entries import Import, ImportedEntry, RefusedEntry, Remark
from engine.json_view import JsonView
from engine.schedules import DEFAULTS, FIELDS
from engine.schedules.describe import yaml_value

_WIDTH: Final = 100
_OF_A_CRON: Final = frozenset({"timezone", "dst"})
_EACH_ITS_OWN: Final = frozenset({"timezone", "taskQueue"})
"""Fields whose usual value may be shared, because another one overrides it as a whole."""
_SEVERAL: Final = 2

# --- YAML ---


def as_yaml_file(of: Import, *, project: str | None = None) -> str:
    """Return the schedule file of an import.

    Without any entry it has comments only: no schedule file is without schedules.
    """
    shared = _shared(of.entries)
    lines = [*_head(of), ""]
    if of.entries:
        lines += ["version: 1", *([f"project: {yaml_value(project)}"] if project else [])]
        if shared:
            lines += ["defaults:", *_block(shared, 1)]
        lines += ["schedules:"]
        for entry in of.entries:
            lines += _entry(entry, shared)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(of: Import) -> Iterator[str]:
    total = len(of.entries) + len(of.refused)
    yield from _comment(f"Imported from {of.source}: {len(of.entries)} of {total} entries.")
    for remark in of.remarks:
        yield from _comment(str(remark))
    for refused in of.refused:
        yield from _comment(f"Not imported: {refused.place}: {refused.text}", mark="! ")
        yield from _comment(refused.sentence, mark="!   ")


def _entry(entry: ImportedEntry, shared: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    what = f"{entry.place}: {entry.text}" if entry.text else entry.place
    yield from _comment(what, indent=2)
    for remark in entry.remarks:
        yield from _comment(str(remark), indent=2)
    own = {name: one for name, one in entry.fields.items() if shared.get(name) != one}
    lines = _block({name: own[name] for name in FIELDS if name in own}, 2)
    yield f"  - {lines[0].lstrip()}"
    yield from lines[1:]


def _comment(text: str, *, indent: int = 0, mark: str = "") -> list[str]:
    begin = f"{' ' * indent}# {mark}"
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=begin,
        subsequent_indent=begin + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _block(fields: Mapping[str, Any], depth: int) -> list[str]:
    """Return fields as lines; a mapping or list that is long or nested has a block of its own."""
    lines = []
    begin = "  " * depth
    for name, value in fields.items():
        line = f"{begin}{yaml_value(name)}: {yaml_value(value)}"
        if value and isinstance(value, Mapping | list) and _is_long(line, value):
            lines += [f"{begin}{yaml_value(name)}:", *_nested(value, depth + 1)]
        else:
            lines.append(line)
    return lines


def _nested(value: Mapping[str, Any] | Sequence[Any], depth: int) -> list[str]:
    if isinstance(value, Mapping):
        return _block(value, depth)
    begin = "  " * depth
    lines = []
    for item in value:
        if item and isinstance(item, Mapping) and _is_long(f"{begin}- {yaml_value(item)}", item):
            first, *others = _block(item, depth + 1)
            lines += [f"{begin}- {first.lstrip()}", *others]
        else:
            lines.append(f"{begin}- {yaml_value(item)}")
    return lines


def _is_long(line: str, value: Mapping[str, Any] | Sequence[Any]) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value
    return len(line) > _WIDTH or any(isinstance(one, Mapping) and one for one in inner)


def _shared(entries: Sequence[ImportedEntry]) -> dict[str, Any]:
    """Return fields that two or more entries share, wherever they apply."""
    found: dict[str, Any] = {}
    for name in DEFAULTS:
        if name == "mode":
            continue  # each leaves shadow mode by itself
        of_all = name not in _OF_A_CRON
        concerned = [each.fields for each in entries if of_all or "cron" in each.fields]
        others = [each.fields for each in entries if not of_all and "cron" not in each.fields]
        values = [fields.get(name) for fields in concerned]
        if len(values) < _SEVERAL or None in values or any(name in fields for fields in others):
            continue
        usual = max(values, key=values.count)
        if name in _EACH_ITS_OWN or values.count(usual) == len(values):
            found[name] = usual
    return found


# --- JSON ---

PARTS: Final = (
    JsonView(Remark, "kind aspect sentence"),
    JsonView(ImportedEntry, "from=place text schedule=fields remarks"),
    JsonView(RefusedEntry, "from=place text code sentence"),
)
IMPORT: Final = JsonView(
    Import, "source complete=is_complete remarks schedules=entries refused", yaml=str
)


def as_lines(of: Import) -> Iterator[str]:
    """Yield what a person reads beside the file: refusals first, then what is missing or differs.

    Notes are in the file only.
    """
    for each in of.refused:
        yield f"{each.code}: {each.place}: {each.sentence}"
    named = [
        *(("", remark) for remark in of.remarks),
        *((f"{each.key}: ", remark) for each in of.entries for remark in each.remarks),
    ]
    for begin, remark in sorted(named, key=lambda pair: pair[1].kind != "missing"):
        if remark.kind != "note":
            yield f"{begin}{remark}"
