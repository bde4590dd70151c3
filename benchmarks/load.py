"""Reading a large schedule file: time and memory beside a plain parser and the same models.

The rival is ``yaml.CSafeLoader`` or ``json.loads`` with ``Schedule.model_validate`` of each entry:
what one would write without an engine, with neither places nor duplicates nor caps. Every
measurement is a fresh process (`benchmarks.load_child`). *worker* is what a replica does: a child
reads, and the peaks of both and the longest pause of its event loop are measured. *unchanged*
is what a replica does when the ledger has the file already, as a share of the first load.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from benchmarks.children import ROOT
from benchmarks.report import Measured, Row
from benchmarks.spread import median

SIZES = (20_000, 100_000)
SAMPLES = 5
CONTESTANTS = ("ours", "rival", "worker", "unchanged")
_ZONES = ("UTC", "America/Sao_Paulo", "Europe/Berlin", "Asia/Tokyo")


async def run(*, quick: bool = False) -> Measured:
    """Measure every size as YAML and as JSON; the samples of the contestants alternate."""
    rows: list[Row] = []
    samples: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        for size in (2_000,) if quick else SIZES:
            for path in _write(Path(folder), size):
                found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTESTANTS}
                for _ in range(1 if quick else SAMPLES):
                    for name in CONTESTANTS:
                        found[name].append(await _child(name, path))
                for name, values in found.items():
                    samples[f"{name} {path.name} s"] = [value["seconds"] for value in values]
                rows.append(_row(size, path, found))
    return Measured("load", rows, samples)


def _row(size: int, path: Path, found: dict[str, list[dict[str, float]]]) -> Row:
    def of(name: str, what: str) -> float:
        return median(value[what] for value in found[name])

    ours, rival = of("ours", "seconds"), of("rival", "seconds")
    return {
        "entries": f"{size:,}",
        "text": path.suffix[1:].upper(),
        "sched-engine s": round(ours, 2),
        "rival s": round(rival, 2),
        "ratio": round(ours / rival, 2),
        "sched-engine MiB": round(of("ours", "peak_mib")),
        "rival MiB": round(of("rival", "peak_mib")),
        "worker s": round(of("worker", "seconds"), 2),
        "worker MiB": round(of("worker", "peak_mib")),
        "its child MiB": round(of("worker", "child_mib")),
        "loop's longest pause ms": round(of("worker", "pause_ms")),
        "unchanged %": round(100 * of("unchanged", "seconds") / ours, 2),
    }


async def _child(contestant: str, path: Path) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.load_child", contestant, str(path)),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    answer, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{contestant} ended with {process.returncode} on {path.name}")
    values: dict[str, float] = json.loads(answer)
    return values


def _write(folder: Path, size: int) -> list[Path]:
    """Write one set of schedules as YAML, as people write it, and as JSON."""
    entries = [_entry(number) for number in range(size)]
    as_yaml, as_json = folder / f"{size}.yaml", folder / f"{size}.json"
    whole = {"version": 1, "schedules": entries}
    as_yaml.write_text(yaml.dump(whole, Dumper=yaml.CSafeDumper, sort_keys=False))
    as_json.write_text(json.dumps(whole, indent=1))
    return [as_yaml, as_json]


def _entry(number: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"key": f"tenant-{number:06d}", "workflow": "cache-sync"}
    if number % 2:
        entry["cron"] = f"{number % 60} {number // 60 % 24} * * *"
        entry["timezone"] = _ZONES[number // 2 % 4]
    else:
        entry["everyMs"] = 300_000 + 1_000 * (number % 600)
    return {**entry, "input": {"tenant": number, "region": "eu"}}
