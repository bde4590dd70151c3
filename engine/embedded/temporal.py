"""Embedded Temporal development server of ``sched up``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import ConnectConfig, RPCError, ServiceClient

from engine.embedded.binaries import temporal_cli
from engine.embedded.process import HOST, Server, free_port, require_free

_QUEUES: Mapping[str, str | float | bool] = {
    # A task queue with a single partition keeps its tasks in order; turns go by fairness keys.
    "matching.numTaskqueueReadPartitions": 1,
    "matching.numTaskqueueWritePartitions": 1,
    "matching.enableFairness": True,
}
"""Server settings that the order of queued steps requires; the same as in deploy/temporal.yaml."""

_SIGNALS = ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0))


class TemporalServer(Server):
    """``temporal server start-dev`` on 127.0.0.1.

    Args:
        data_dir: folder of ``temporal.db``, ``temporal.log`` and the pid file.
        port: port of the frontend; 0 takes a free one.
        ui_port: port of the Web UI; 0 takes a free one, None disables it.
        dynamic_config: server settings by name, e.g. ``{"frontend.namespaceRPS": 10_000}``; they
            override those that step queues require.
        in_memory: keep no history, only the log and the pid file.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        ui_port: int | None = None,
        *,
        dynamic_config: Mapping[str, str | float | bool] | None = None,
        in_memory: bool = False,
    ) -> None:
        super().__init__("Temporal", "temporal", data_dir, port, _SIGNALS)
        self.ui_port = ui_port
        self._dynamic_config = {**_QUEUES, **(dynamic_config or {})}
        self._in_memory = in_memory

    @property
    def address(self) -> str:
        """``host:port`` of the frontend."""
        return f"{HOST}:{self.port}"

    @property
    def ui_url(self) -> str | None:
        """Address of the Web UI; None without one."""
        return None if self.ui_port is None else f"http://{HOST}:{self.ui_port}"

    async def _start(self) -> None:
        program = await asyncio.to_thread(temporal_cli)
        await self.stop_orphan()
        require_free({"--temporal-port": self.port, "--ui-port": self.ui_port})
        self.port = self.port or free_port()
        if self.ui_port == 0:
            self.ui_port = free_port()
        # HOME and PATH in case `temporal` is a version manager's shim; no other user variables.
        env = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        self.spawn([program, *self._arguments()], env=env)

    def _arguments(self) -> list[str]:
        arguments = ["server", "start-dev", "--ip", HOST, "--port", str(self.port)]
        if self.ui_port is None:
            arguments.append("--headless")
        else:
            arguments += ["--ui-port", str(self.ui_port)]
        if not self._in_memory:
            arguments += ["--db-filename", str(self.data_dir / "temporal.db")]
        for name, value in self._dynamic_config.items():
            arguments += ["--dynamic-config-value", f"{name}={json.dumps(value)}"]
        return arguments

    async def _answers(self) -> bool:
        """Return whether the Web UI listens, and the frontend describes its namespace."""
        for port in (self.port, self.ui_port):  # a port is cheaper to poll than a gRPC service
            if port and not _listens(port):
                return False
        with contextlib.suppress(RPCError, RuntimeError):
            client = await ServiceClient.connect(ConnectConfig(target_host=self.address))
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace="default"), timeout=timedelta(seconds=5)
            )
            return True
        return False


def _listens(port: int) -> bool:
    with socket.socket() as visitor:
        return visitor.connect_ex((HOST, port)) == 0
