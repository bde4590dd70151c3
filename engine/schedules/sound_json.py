"""Reads JSON without places: three times faster than `json_text`, for the text that is sound.

Whoever finds anything wrong with what comes back reads the text again, with places.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, NoReturn

from engine.schedules.nodes import MAX_DEPTH, MAX_DIGITS, MAX_NODES, Mapping, Node, Scalar, Sequence

_DOUBTFUL = re.compile(r"\\u(?:0000|[dD][89a-fA-F])|\x00|[\ud800-\udfff]")
"""May be a text that no database keeps; looked at by the careful reader."""


def read_sound_json(text: str) -> Node | None:
    """Return the tree of ``text``, every place 0, or None where only `JsonText` can judge it."""
    if sum(map(text.count, ",[{")) >= MAX_NODES // 2 or _DOUBTFUL.search(text):
        return None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_int=_integer,
            parse_float=_float,
        )
        return _Nodes().of(value, MAX_DEPTH)
    except (ValueError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse(_: str) -> NoReturn:
    raise ValueError


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits)
    if len(digits) > MAX_DIGITS or not isfinite(value):
        raise ValueError
    return value


class _Nodes:
    """Makes nodes of plain values; those of equal names are one."""

    def __init__(self) -> None:
        self._names: dict[str, Scalar] = {}

    def of(self, value: Any, levels: int) -> Node:
        if isinstance(value, dict):
            mapping = Mapping(0, 0)
            if not levels:
                raise ValueError
            for name, item in value.items():
                node = self._names.get(name)
                if node is None:
                    node = self._names[name] = Scalar(name, 0, 0)
                mapping.entries[name] = (node, self.of(item, levels - 1))
            return mapping
        if isinstance(value, list):
            sequence = Sequence(0, 0)
            if not levels:
                raise ValueError
            sequence.items = [self.of(item, levels - 1) for item in value]
            return sequence
        return Scalar(value, 0, 0)
