"""``make prove-faults``: everything breaks, by a seed, and the account of it is judged."""

# ruff: noqa: T201 - it reports to whoever runs it

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.nemesis.account import Account
from tests.nemesis.laws import LAWS, judge
from tests.nemesis.run import attack
from tests.nemesis.violation import Violation

_BUSY = 0.3
_SHOWN = 5
"""Violations of one law that are printed."""


def main() -> int:
    """Attack and judge, or judge again; 1 where a law is broken."""
    parser = argparse.ArgumentParser(prog="make prove-faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="draws the plan")
    parser.add_argument("--minutes", type=float, default=10, help="of faults and verbs")
    parser.add_argument(
        "--pace", type=float, default=2, help="1 wants two idle cores, 3 is content with one"
    )
    parser.add_argument("--folder", type=Path, help="for logs and the account; a temporary one")
    parser.add_argument("--judge", type=Path, metavar="ACCOUNT", help="an account of before")
    options = parser.parse_args()
    if options.judge:
        return _report(Account.load(options.judge), options.judge)
    folder = options.folder or Path(tempfile.mkdtemp(prefix=f"sched-nemesis-{options.seed}-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, {options.minutes:g} minutes, logs in {folder}", flush=True)
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)  # links are cut on purpose
    with (folder / "nemesis.log").open("a", encoding="utf-8") as log:

        def say(line: str) -> None:
            print(line, file=log, flush=True)

        account = asyncio.run(attack(options.seed, options.minutes, options.pace, folder, say))
    account.save(folder / "account.json")
    return _report(account, folder / "account.json")


def _report(account: Account, path: Path) -> int:
    windows = sum(row.windows for row in account.rows if row.is_window)
    statuses = Counter(row.status for row in account.rows)
    print(f"{windows} windows in {len(account.rows)} rows: {_counted(statuses)}")
    print(f"{len(account.runs)} runs, {len(account.notes)} attempts of steps")
    print(f"{len(account.faults)} faults: {_counted(Counter(f.kind for f in account.faults))}")
    outcomes = Counter(verb.outcome for verb in account.verbs)
    print(f"{len(account.verbs)} verbs: {_counted(Counter(v.verb for v in account.verbs))}")
    print(f"answers: {_counted(outcomes)}")
    if late := account.late:
        p95, most = late[len(late) * 95 // 100], late[-1]
        busy = ": this machine is too busy for a verdict on what comes late" * (p95 > _BUSY)
        print(f"the nemesis itself was late by {p95:.2f} s at p95, {most:.2f} s at most{busy}")
    found = judge(account)
    broken = Counter(each.law for each in found)
    print(f"{len(LAWS)} laws, {len(found)} violations" + (f": {_counted(broken)}" if found else ""))
    for law in broken:
        _show([each for each in found if each.law == law])
    if not found:
        return 0
    print(
        f"\nseed {account.seed}; {path} has every row, run, verb and fault, and"
        f"\n.venv/bin/python -m tests.nemesis --judge {path} judges it again"
    )
    return 1


def _show(found: list[Violation]) -> None:
    """Print some violations of one law; the file has what all of them are about."""
    for each in found[:_SHOWN]:
        print(f"\n{each.law}: {each.text}")
        for line in each.evidence:
            print(f"  {line}")
    if len(found) > _SHOWN:
        print(f"\n{found[0].law}: and {len(found) - _SHOWN} more")


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counter.most_common())


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # clients of servers that are gone need not be waited for
