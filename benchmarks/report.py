"""Writes what was measured: a Markdown table for people, JSON for the repository and its docs."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from benchmarks.children import ROOT
from engine.embedded.binaries import POSTGRES_MAJOR, temporal_cli

RESULTS = Path(__file__).with_name("results")
DOCUMENT = ROOT / "docs" / "performance.md"

Row: TypeAlias = "dict[str, str | float]"


@dataclass(frozen=True, slots=True)
class Measured:
    """What one benchmark found.

    Attributes:
        name: the benchmark's, and the marker's in the document.
        rows: the table, all with the same columns.
        samples: the single values that the rows were made from, by contestant.
    """

    name: str
    rows: list[Row]
    samples: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """A measurement, with where and when it was made."""

    measured: Measured
    machine: str
    date: str

    @classmethod
    def of(cls, measured: Measured) -> Report:
        """Say that it was measured here and now."""
        return cls(measured, _machine(), f"{datetime.now(UTC):%Y-%m-%d}")

    @property
    def markdown(self) -> str:
        """The table with a line about the machine below it."""
        rows = self.measured.rows
        columns = list(rows[0])
        lines = [
            "| " + " | ".join(columns) + " |",
            "|" + " --- |" * len(columns),
            *("| " + " | ".join(str(row[column]) for column in columns) + " |" for row in rows),
        ]
        return "\n".join([*lines, "", f"{self.date}, {self.machine}."])

    @property
    def json(self) -> str:
        """Everything, to be read back by ``newest``."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def save(self) -> Path:
        """Write ``results/<name>-<date>.json``; a second run on one day replaces the first."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.measured.name}-{self.date}.json"
        path.write_text(self.json)
        return path


def newest(name: str) -> Report | None:
    """Return the newest saved report of a benchmark."""
    paths = sorted(RESULTS.glob(f"{name}-????-??-??.json"))
    if not paths:
        return None
    values = json.loads(paths[-1].read_text())
    return Report(Measured(**values["measured"]), values["machine"], values["date"])


def write_document(names: list[str]) -> list[str]:
    """Put the newest tables between the document's markers; returns the names without one.

    The document's tables come from here only, so that it cannot disagree with the data.
    """
    text, missing = DOCUMENT.read_text(), []
    for name in names:
        report = newest(name)
        if report is None:
            missing.append(name)
            continue
        between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text, found = between.subn(lambda at: f"{at[1]}{report.markdown}\n{at[2]}", text)  # noqa: B023 - called at once
        if found != 1:
            raise ValueError(f"{DOCUMENT} has {found} places for {name}")
    DOCUMENT.write_text(text)
    return missing


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"Python {platform.python_version()}, temporalio {version('temporalio')}, "
        f"Temporal server {_server_version()}, PostgreSQL {POSTGRES_MAJOR}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _server_version() -> str:
    answer = subprocess.run(  # noqa: S603 - the program that the benchmarks run
        [temporal_cli(), "--version"], check=True, capture_output=True, text=True
    ).stdout
    found = re.search(r"Server ([\d.]+)", answer)
    return found[1] if found else answer.strip()
