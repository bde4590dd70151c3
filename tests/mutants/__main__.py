"""``make prove-mutants``: break the engine in named ways, and show which test notices."""

# ruff: noqa: T201 - it reports to whoever runs it

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from tests.mutants.catalogue import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
_PATIENCE = "--timeout=120"
"""A mutant may make its test wait for ever."""
_RING = ("--dist", "worksteal", "--numprocesses", "2")
"""What `make test` runs, for a survivor."""
_GREEN, _SOME_RED = 0, 1
_RED = re.compile(r"^FAILED (tests/.+?)(?: - |$)", re.MULTILINE)
_NO_CODE = re.compile(
    r"^E .*\b(SyntaxError|IndentationError|NameError|ImportError|ModuleNotFoundError"
    r"|syntax error at|(?:column|relation|function) \S+ does not exist)",
    re.MULTILINE,
)
"""Errors of a change that is no code; a test that fails with one shows nothing."""
_SHOWN = 4000


class NoAnswerError(Exception):
    """What pytest said of a mutant is no answer of a test."""


class Checkout:
    """A copy of the tracked files, in which tests run with the engine of the copy."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._moments = folder, count(1_000_000_000)
        self._environment = {**os.environ, "PYTHONPATH": str(folder)}
        names = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
        for name in filter(None, names):
            if not (ROOT / name).exists():
                continue  # removed, and not committed yet
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        _, found = self._run(sys.executable, "-c", "import engine; print(engine.__file__)")
        if not found.startswith(f"{folder}/"):
            raise NoAnswerError(f"tests of the copy {folder} would run {found}")

    def write(self, name: str, text: str) -> None:
        """Replace a file of the copy."""
        path = self._folder / name
        path.write_text(text, encoding="utf-8")
        # Python compiles a file again when its time or size has changed. Two texts of one size that
        # are written within a second would be taken for the same.
        moment = next(self._moments)
        os.utime(path, (moment, moment))

    def test(self, *given: str) -> tuple[int, str]:
        """Run pytest; return its exit code and its output."""
        return self._run(*_PYTEST, *given)

    def _run(self, *command: str) -> tuple[int, str]:
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.returncode, done.stdout


def killer(checkout: Checkout, mutant: Mutant) -> str | None:
    """Return the first test that turns red: of the mutant's own, else of all. None if it survives.

    Raises:
        ValueError: the mutant does not fit the code.
        NoAnswerError: its tests could not run.
    """
    before = (ROOT / mutant.file).read_text(encoding="utf-8")
    checkout.write(mutant.file, mutant.broken(before))
    try:
        return _first_red(checkout, _PATIENCE, *mutant.tests) or _first_red(checkout, *_RING)
    finally:
        checkout.write(mutant.file, before)


def _first_red(checkout: Checkout, *given: str) -> str | None:
    code, output = checkout.test("-x", *given)
    if code == _GREEN:
        return None
    red, no_code = _RED.search(output), _NO_CODE.search(output)
    if code != _SOME_RED or red is None or no_code:
        why = no_code[0] if no_code else f"pytest ended with {code}"
        raise NoAnswerError(f"{why}, which is no answer of a test\n{output[-_SHOWN:]}")
    return red[1]


def are_sound(checkout: Checkout, mutants: Iterable[Mutant]) -> bool:
    """Return whether the tests of these mutants pass where nothing is broken."""
    code, output = checkout.test(_PATIENCE, *sorted({it for each in mutants for it in each.tests}))
    if code != _GREEN:
        print(output[-_SHOWN:], "tests of mutants fail on the unbroken code", sep="\n")
    return code == _GREEN


def main() -> int:
    """Run the mutants that are named, or all; 1 if one survives or shows nothing."""
    parser = argparse.ArgumentParser(prog="make prove-mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a mutant; all of them if none")
    names = parser.parse_args().names
    if unknown := {*names} - {each.name for each in MUTANTS}:
        parser.error(f"there is no mutant {', '.join(sorted(unknown))}")
    chosen = [each for each in MUTANTS if not names or each.name in names]
    with tempfile.TemporaryDirectory(prefix="sched-mutants-") as folder:
        checkout = Checkout(Path(folder).resolve())
        return _report(checkout, chosen) if are_sound(checkout, chosen) else 1


def _report(checkout: Checkout, mutants: Sequence[Mutant]) -> int:
    begun, killed = time.monotonic(), 0
    for mutant in mutants:
        try:
            red = killer(checkout, mutant)
        except (NoAnswerError, ValueError) as error:
            outcome = f"INVALID: {error}"
        else:
            killed += red is not None
            outcome = red or "SURVIVED"
        print(f"{mutant.name:36} {mutant.ring}: {mutant.promise}\n{'':36} {outcome}", flush=True)
    took = time.monotonic() - begun
    print(f"{killed} of {len(mutants)} mutants killed, in {took:.0f} s")
    return int(killed < len(mutants))


if __name__ == "__main__":
    sys.exit(main())
