"""All laws, and the judge that asks each of them. A law is a function from an account to whatever
breaks it; its name is the promise. None of them shares code with the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.nemesis import overlap_laws, run_laws, step_laws, verb_laws, window_laws
from tests.nemesis.account import Account
from tests.nemesis.violation import Violation

Law = Callable[[Account], Iterator[Violation]]

LAWS: dict[str, Law] = {
    law.__name__: law
    for module in (window_laws, run_laws, overlap_laws, step_laws, verb_laws)
    for law in module.LAWS
}


def judge(account: Account) -> list[Violation]:
    """Return everything that breaks a law."""
    return [violation for law in LAWS.values() for violation in law(account)]
