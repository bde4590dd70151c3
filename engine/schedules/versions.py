"""Which Temporal workflow type a schedule's ``workflow:`` means."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_COMPARED: Final = 100
"""Signs of a name; comparing takes the square of it."""


def version_order(version: str) -> tuple[int, ...]:
    """Return the sort key of a dotted version: ``1.10`` is newer than ``1.9``.

    Trailing zeros do not count, so ``1`` and ``1.0`` are the same age.
    """
    numbers = [int(part) for part in version.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def resolve_type(workflow: str, announced: Iterable[str]) -> str | None:
    """Return the exact Temporal type to start, or None while nobody has announced one.

    The exact name wins, then the highest ``name@version``. Types are only ever added to what was
    announced, so the result never falls below that of an earlier fire. External workflows are
    types as written and are not asked about here.
    """
    types = set(announced)
    if workflow in types:
        return workflow
    prefix = f"{workflow}@"
    versions = [name[len(prefix) :] for name in types if name.startswith(prefix)]
    dotted = [version for version in versions if _is_dotted(version)]
    return prefix + max(dotted, key=version_order) if dotted else None


def nearest_name(workflow: str, announced: Iterable[str]) -> str | None:
    """Return what ``workflow:`` was probably meant to say, or None.

    Of a type ``hello@1`` that is ``hello``, unless a version was asked for.
    """
    names = set(announced)
    if "@" not in workflow:
        names = {name.partition("@")[0] for name in names}
    by_lower = {name.lower()[:_COMPARED]: name for name in sorted(names)}
    near = get_close_matches(workflow.lower()[:_COMPARED], by_lower, n=1)
    return by_lower[near[0]] if near else None


def _is_dotted(version: str) -> bool:
    return all(part.isdecimal() for part in version.split("."))
