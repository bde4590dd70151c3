"""What a law says when it is broken, with the evidence in lines that a person can read."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from tests.nemesis.account import Chain

_MOST = 8
"""Pieces of evidence that are shown of one violation."""


@dataclass(frozen=True)
class Violation:
    """One case of a promise that was not kept."""

    law: str
    text: str
    evidence: tuple[str, ...] = ()


def broken(text: str, *evidence: Any) -> Violation:
    """Return a violation of the law that calls this; lists are taken apart, None is nothing."""
    frame = inspect.currentframe()
    assert frame
    assert frame.f_back
    pieces: list[Any] = []
    for each in evidence:
        pieces += each if isinstance(each, list) else [each] if each is not None else []
    lines = [_line(each) for each in pieces[:_MOST]]
    if len(pieces) > _MOST:
        lines.append(f"and {len(pieces) - _MOST} more")
    return Violation(frame.f_back.f_code.co_name, text, tuple(lines))


def _line(piece: Any) -> str:
    if isinstance(piece, Chain):
        ends = f"{_short(piece.start)} to {_short(piece.close)} {piece.status}"
        named = f"{piece.workflow_id} {piece.runs[0].run_id}"
        return f"Chain {named}: {len(piece.runs)} runs, {ends}"
    said = ((name, _short(each)) for name, each in asdict(piece).items() if name != "key")
    words = [f"{name}={each}" for name, each in said if each not in (None, [], {}, "")]
    return f"{type(piece).__name__} {' '.join(words)}"


def _short(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%H:%M:%S.%f}"[:-3]
    return value
