"""The embedded Temporal development server of ``sched up``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import ConnectConfig, RPCError, ServiceClient

from engine.embedded.binaries import temporal_cli
from engine.embedded.ports import HOST, free_port, require_free
from engine.embedded.process import Server

_READY_WITHIN = 60.0
_QUEUES: Mapping[str, str | float | bool] = {
    # Task queues of one part each keep what waits in order, and turns are taken by fairness keys.
    "matching.numTaskqueueReadPartitions": 1,
    "matching.numTaskqueueWritePartitions": 1,
    "matching.enableFairness": True,
}
"""What the order of steps in queues needs of the server; deploy/temporal.yaml says the same."""

_SIGNALS = ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0))


class TemporalServer(Server):
    """``temporal server start-dev`` on 127.0.0.1.

    Args:
        data_dir: holds ``temporal.db``, ``temporal.log`` and the pid file; None keeps nothing.
        port: of the frontend; 0 takes a free one.
        ui_port: of the Web UI; 0 takes a free one, None goes without.
        namespaces: created at the start beside ``default``.
        dynamic_config: server settings by name, e.g. ``{"frontend.namespaceRPS": 10_000}``; they
            win over those that queues of steps need.
        search_attributes: type by name, e.g. ``{"Customer": "Keyword"}``.
        in_memory: keep no history, only log and pid file.
    """

    def __init__(
        self,
        data_dir: Path | None,
        port: int = 0,
        ui_port: int | None = None,
        *,
        namespaces: Sequence[str] = (),
        dynamic_config: Mapping[str, str | float | bool] | None = None,
        search_attributes: Mapping[str, str] | None = None,
        in_memory: bool = False,
    ) -> None:
        self._temporary = data_dir is None
        scratch = Path(tempfile.gettempdir(), f"sched-temporal-{secrets.token_hex(8)}")
        super().__init__("Temporal", "temporal", data_dir or scratch, _SIGNALS)
        self.port = port
        self.ui_port = ui_port
        self._namespaces = ("default", *namespaces)
        self._dynamic_config = {**_QUEUES, **(dynamic_config or {})}
        self._search_attributes = dict(search_attributes or {})
        self._in_memory = in_memory or self._temporary

    @property
    def address(self) -> str:
        """``host:port`` of the frontend."""
        return f"{HOST}:{self.port}"

    @property
    def ui_url(self) -> str | None:
        """Address of the Web UI, None without one."""
        return None if self.ui_port is None else f"http://{HOST}:{self.ui_port}"

    async def stop(self) -> None:
        """Stop it and return when it has ended; harmless when it does not run."""
        await super().stop()
        if self._temporary:
            await asyncio.to_thread(shutil.rmtree, self.data_dir, ignore_errors=True)

    async def _start(self) -> None:
        program = await asyncio.to_thread(temporal_cli)
        await self.stop_orphan()
        self._choose_ports()
        # HOME and PATH for a `temporal` that is a version manager's shim; no more of the user's.
        env = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        self._process.spawn([program, *self._arguments()], port=self.port, env=env)
        await self._ready()

    def _choose_ports(self) -> None:
        require_free({"--temporal-port": self.port, "--ui-port": self.ui_port})
        self.port = self.port or free_port()
        if self.ui_port == 0:
            self.ui_port = free_port()

    def _arguments(self) -> list[str]:
        arguments = ["server", "start-dev", "--ip", HOST, "--port", str(self.port)]
        if self.ui_port is None:
            arguments.append("--headless")
        else:
            arguments += ["--ui-port", str(self.ui_port)]
        if not self._in_memory:
            arguments += ["--db-filename", str(self.data_dir / "temporal.db")]
        for namespace in self._namespaces:
            arguments += ["--namespace", namespace]
        for name, value in self._dynamic_config.items():
            arguments += ["--dynamic-config-value", f"{name}={json.dumps(value)}"]
        for name, kind in self._search_attributes.items():
            arguments += ["--search-attribute", f"{name}={kind}"]
        return arguments

    async def _ready(self) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        # A port is cheaper to ask again and again than a gRPC service.
        for port in (self.port, self.ui_port):
            while port and not await _listens(port):
                self._process.check(deadline)
                await asyncio.sleep(0.02)
        while not await self._answers():
            self._process.check(deadline)
            await asyncio.sleep(0.05)

    async def _answers(self) -> bool:
        """Whether the frontend describes every namespace that was asked for."""
        with contextlib.suppress(RPCError, RuntimeError):
            client = await ServiceClient.connect(ConnectConfig(target_host=self.address))
            for namespace in self._namespaces:
                await client.workflow_service.describe_namespace(
                    DescribeNamespaceRequest(namespace=namespace), timeout=timedelta(seconds=5)
                )
            return True
        return False


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
