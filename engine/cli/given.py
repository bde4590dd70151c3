"""Values that are typed as JSON."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import typer

_NOT_KEPT = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""What no database keeps, in the text of JSON."""


def given_input(text: str | None) -> tuple[Any, ...]:
    """Return the argument that ``--input`` names, in a tuple; without it an empty one.

    Raises:
        typer.BadParameter: it is no JSON that a run could be given.
    """
    if text is None:
        return ()
    try:
        value = json.loads(text, parse_constant=_refuse)
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        written.encode()
    except (ValueError, RecursionError):
        raise typer.BadParameter(
            f'{text[:80]!r} is no JSON; write for example \'{{"format": "pdf"}}\'',
            param_hint="'--input'",
        ) from None
    if _NOT_KEPT.search(written):
        raise typer.BadParameter("no database keeps the character U+0000", param_hint="'--input'")
    return (value,)


def _refuse(_: str) -> NoReturn:
    raise ValueError
