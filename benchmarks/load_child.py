"""One measurement of ``benchmarks.load``: reads a file once and prints time and peak memory."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import yaml

from engine.runtime.apply.child_parser import calendars_beside
from engine.runtime.apply.source import Source
from engine.schedules import Schedule
from engine.schedules.loader.loader import NamedText, load_several


def _ours(path: Path) -> object:
    return load_several([NamedText(str(path), path.read_text())], "", open_ics=calendars_beside)


def _rival(path: Path) -> object:
    text = path.read_text()
    is_json = path.suffix == ".json"
    read = json.loads(text) if is_json else yaml.load(text, Loader=yaml.CSafeLoader)
    return [
        Schedule.model_validate(entry, by_alias=True, by_name=False) for entry in read["schedules"]
    ]


def _unchanged(path: Path) -> object:
    source = Source(path)
    assert source.look().is_certain(), "the plugin would have to read the file"
    return source.look().digest()  # the replica's look


def _worker(path: Path, pauses: list[float]) -> object:
    async def read() -> object:
        reading = asyncio.create_task(asyncio.to_thread(Source(path).read))
        while not reading.done():
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.append(time.perf_counter() - before)
        return await reading

    return asyncio.run(read())


def main() -> None:
    """Measure the contestant that the command line names."""
    contestant, path = sys.argv[1], Path(sys.argv[2])
    pauses = [0.0]
    contestants: dict[str, Callable[[Path], object]] = {
        "ours": _ours,
        "rival": _rival,
        "unchanged": _unchanged,
        "worker": partial(_worker, pauses=pauses),
    }
    begin = time.perf_counter()
    kept = contestants[contestant](path)
    seconds = time.perf_counter() - begin
    values = {
        "seconds": seconds,
        "peak_mib": _peak(),
        "child_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        "pause_ms": max(pauses) * 1000,
    }
    print(json.dumps(values))
    del kept


def _peak() -> float:
    """Return the largest resident memory of this process in MiB."""
    # Not getrusage: what it says of a process begins with the size of the one that forked it.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
