"""The small pieces of English that sentences about time are made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

_LONG_RUN: Final = 3  # two neighbours are named, three become "a to b"
_LONG_LADDER: Final = 5  # fewer steps are listed
_TEENS: Final = (11, 12, 13)


def listed(items: Sequence[str], word: str = "and") -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    if len(items) < 2:  # noqa: PLR2004 - one needs no word between
        return "".join(items)
    return f"{', '.join(items[:-1])} {word} {items[-1]}"


def ordinal(n: int) -> str:
    """Return ``1st``, ``2nd``, ``3rd``, ``4th`` and so on."""
    suffix = "th" if n % 100 in _TEENS else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


def time_of_day(second: int) -> str:
    """Return the time ``second`` seconds after midnight: ``02:30``, or ``02:30:15``."""
    minute, second = divmod(second, 60)
    text = f"{minute // 60:02}:{minute % 60:02}"
    return f"{text}:{second:02}" if second else text


def runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending values as (first, last) of neighbours."""
    found: list[tuple[int, int]] = []
    for value in values:
        if found and found[-1][1] == value - 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found


def step_of(values: Sequence[int]) -> int:
    """Return the distance of evenly spaced, ascending values, or 0 of others (or fewer than 2)."""
    steps = {later - value for value, later in pairwise(values)}
    return steps.pop() if len(steps) == 1 else 0


def numbered(noun: str, values: Sequence[int]) -> str:
    """Return ascending numbers behind their noun: nothing is left out, runs and steps are short.

    ``minute 5``, ``minutes 0 to 9 and 30``, ``every 7th minute from 0 to 56``.
    """
    if len(values) >= _LONG_LADDER and (step := step_of(values)) > 1:
        return f"every {ordinal(step)} {noun} from {values[0]} to {values[-1]}"
    texts: list[str] = []
    for first, last in runs(values):
        if last - first + 1 >= _LONG_RUN:
            texts.append(f"{first} to {last}")
        else:
            texts += [str(value) for value in range(first, last + 1)]
    return f"{noun if len(values) == 1 else noun + 's'} {listed(texts)}"


def around(values: Sequence[int], names: Sequence[str], begin: int) -> list[str]:
    """Return names on a circle, counted from ``begin``: three or more neighbours as ``a to b``.

    Args:
        values: places on the circle, which has as many as there are names.
        names: by place.
        begin: the place that is named first.
    """
    size, held = len(names), set(values)
    if len(held) == size:
        return [f"{names[begin]} to {names[begin - 1]}"]
    texts: list[str] = []
    for first in sorted(held, key=lambda place: (place - begin) % size):
        if (first - 1) % size in held:
            continue
        length = next(n for n in range(1, size) if (first + n) % size not in held)
        run = [names[(first + n) % size] for n in range(length)]
        texts += [f"{run[0]} to {run[-1]}"] if length >= _LONG_RUN else run
    return texts
