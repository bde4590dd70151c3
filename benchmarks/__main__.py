"""``python -m benchmarks [NAME...]``: run them all, or the named ones.

``--quick`` takes few samples to see that everything works; its numbers are not kept. ``--only``
makes ``isolation`` measure beside one trouble only, which is not kept either. ``--json`` prints
JSON. ``--write`` measures nothing: it puts the newest kept results into the document.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Coroutine
from functools import partial
from typing import Any, Protocol

from benchmarks import (
    api,
    apply,
    backfill,
    commands,
    cron,
    events,
    herd,
    idle,
    isolation,
    lag,
    load,
    page,
    skips,
    steady,
    step,
    telemetry,
)
from benchmarks.report import Measured, Report, write_document
from benchmarks.troubles import TROUBLES


class Benchmark(Protocol):
    """One measurement; see the docstring of its module."""

    def __call__(self, *, quick: bool) -> Coroutine[Any, Any, Measured]:
        """Measure."""


BENCHMARKS: dict[str, Benchmark] = {
    "herd": herd.run,
    "lag": lag.run,
    "idle": idle.run,
    "cron": cron.run,
    "load": load.run,
    "apply": apply.run,
    "step": step.run,
    "isolation": isolation.run,
    "skips": skips.run,
    "backfill": backfill.run,
    "steady": steady.run,
    "telemetry": telemetry.run,
    "api": api.run,
    "page": page.run,
    "events": events.run,
    "commands": commands.run,
}


def main() -> None:
    """Measure what is asked for, print it, and keep it unless it was quick."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="few samples; nothing is kept")
    parser.add_argument("--only", choices=TROUBLES, help="of isolation; nothing is kept")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--write", action="store_true", help="renew docs/performance.md")
    options = parser.parse_args()
    if unknown := set(options.names) - BENCHMARKS.keys():
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there is {', '.join(BENCHMARKS)}")
    names = options.names or list(BENCHMARKS)
    if options.write:
        for name in write_document(names):
            print(f"no results of {name} yet", file=sys.stderr)
        return
    if options.only and names != ["isolation"]:
        parser.error("--only is for isolation")
    benchmarks = {**BENCHMARKS, "isolation": partial(isolation.run, only=options.only)}
    for name in names:
        report = Report.of(asyncio.run(benchmarks[name](quick=options.quick)))
        print(report.json if options.json else f"\n## {name}\n\n{report.markdown}", flush=True)
        if not options.quick and not options.only:
            print(f"kept in {report.save()}", file=sys.stderr)


if __name__ == "__main__":
    main()
