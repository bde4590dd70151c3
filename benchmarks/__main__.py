"""``python -m benchmarks [NAME...]``: run them all, or the named ones; ``--json`` for programs."""

from __future__ import annotations

import json
import platform
import sys
from datetime import UTC, datetime

from benchmarks import cron, idle

BENCHMARKS = {"cron": cron.run, "idle": idle.run}


def main() -> None:
    """Print a Markdown table per benchmark, or one JSON document."""
    names = [name for name in sys.argv[1:] if not name.startswith("--")] or list(BENCHMARKS)
    measured = {name: BENCHMARKS[name]() for name in names}
    where = f"{platform.machine()}, Python {platform.python_version()}"
    when = f"{datetime.now(UTC):%Y-%m-%d}"
    if "--json" in sys.argv:
        print(json.dumps({"machine": where, "date": when, "results": measured}, indent=2))
        return
    for name, rows in measured.items():
        print(f"\n## {name} ({where}, {when})\n")
        columns = list(rows[0])
        print("| " + " | ".join(columns) + " |")
        print("|" + " --- |" * len(columns))
        for row in rows:
            print("| " + " | ".join(str(row[column]) for column in columns) + " |")


main()
