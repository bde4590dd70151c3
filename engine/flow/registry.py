"""Which workflows and steps this process knows, by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from temporalio.workflow import unsafe

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
"""What a workflow or a step may be called. No ``@``: it parts a workflow's name and version."""

T = TypeVar("T")


def checked_name(name: object, what: str) -> str:
    """Return ``name`` if it may name a workflow or a step.

    Raises:
        TypeError: It is not text.
        ValueError: It has characters that could not be told apart in a Temporal type.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of {what} is text; got {name!r}")
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name {what}: use up to 200 letters, digits, '.', '_' and '-', "
            "beginning with a letter, a digit or '_'",
        )
    return name


class Registry(Generic[T]):
    """Names and what they stand for, written on ordinary imports only.

    Inside the workflow sandbox user modules are imported again for every run; those copies live
    as long as the run and must not replace, or be compared with, the ones the worker serves.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._entries: dict[str, tuple[str, T]] = {}

    def add(self, name: str, owner: type | Callable[..., Any], entry: T) -> None:
        """Remember ``entry``; the same module and qualified name may come again (a re-import).

        Raises:
            ValueError: Something else in this process already has the name.
        """
        if unsafe.in_sandbox():
            return
        place = f"{owner.__module__}.{owner.__qualname__}"
        known, _ = self._entries.get(name, (place, entry))
        if known != place:
            raise ValueError(
                f"two {self._what}s are called {name!r}: {known} and {place}; "
                "give one of them another name",
            )
        self._entries[name] = (place, entry)

    def get(self, name: str) -> T | None:
        """Return what the name stands for, None when nothing does."""
        found = self._entries.get(name)
        return found[1] if found else None

    def snapshot(self) -> dict[str, T]:
        """Return a copy, in the order of registration."""
        return {name: entry for name, (_, entry) in self._entries.items()}
