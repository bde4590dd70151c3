"""A real Prometheus that scrapes the workers of a test."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from engine.embedded import free_port
from tests.acceptance.fleet import ROOT
from tests.pages import ask
from tests.waiting import eventually

RULES = ROOT / "deploy/monitoring/sched.rules.yml"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")

_CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: sched
    static_configs: [{{targets: [{targets}]}}]
"""


class Prometheus:
    """The API of a running Prometheus."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def api(self, path: str) -> Any:
        status, text = await ask(self.port, f"/api/v1/{path}")
        answer = json.loads(text)
        assert (status, answer["status"]) == (200, "success"), text
        return answer["data"]

    async def query(self, expression: str) -> dict[frozenset[tuple[str, str]], float]:
        """The present values of an expression by their labels, without job and instance."""
        found = await self.api(f"query?query={quote(expression)}")
        return {
            frozenset(
                (name, value)
                for name, value in each["metric"].items()
                if name not in {"job", "instance"}
            ): float(each["value"][1])
            for each in found["result"]
        }

    async def is_positive(self, expression: str) -> bool:
        found = await self.query(expression)
        return any(value > 0 for value in found.values())


@asynccontextmanager
async def scraping(folder: Path, ports: list[int]) -> AsyncIterator[Prometheus]:
    """A Prometheus with the shipped rules, which scrapes these ports of this machine."""
    assert PROMETHEUS
    targets = ", ".join(f'"127.0.0.1:{port}"' for port in ports)
    config = folder / "prometheus.yml"
    config.write_text(_CONFIG.format(rules=RULES, targets=targets), encoding="utf-8")
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}", stdout=log, stderr=log,
        )  # fmt: skip
    try:
        await eventually(lambda: _is_ready(port), timeout=60)
        yield Prometheus(port)
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()


async def _is_ready(port: int) -> bool:
    try:
        return (await ask(port, "/-/ready"))[0] == 200
    except OSError:
        return False
