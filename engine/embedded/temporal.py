"""The embedded Temporal development server of ``sched up``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import ConnectConfig, RPCError, ServiceClient

from engine.embedded.account import ENVIRONMENT
from engine.embedded.binaries import temporal_cli
from engine.embedded.lock import unwritable
from engine.embedded.ports import HOST, free_port, require_free
from engine.embedded.process import ServerProcess
from engine.errors import EmbeddedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_READY_WITHIN = 60.0
_SIGNALS = ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0))


class TemporalServer:
    """``temporal server start-dev`` on 127.0.0.1.

    Args:
        data_dir: holds ``temporal.db``, ``temporal.log`` and the pid file. None: nothing is
            kept, not even the log.
        port: of the frontend; 0 takes a free one.
        ui_port: of the Web UI; 0 takes a free one, None goes without.
        namespaces: created at the start beside ``default``.
        dynamic_config: server settings by name, e.g. ``{"frontend.namespaceRPS": 10_000}``.
        search_attributes: type by name, e.g. ``{"Customer": "Keyword"}``.
        in_memory: keep no history although there is a data_dir (for log and pid file).
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
        self.data_dir = None if data_dir is None else data_dir.absolute()
        self.port = port
        self.ui_port = ui_port
        self._namespaces = tuple(namespaces)
        self._dynamic_config = dict(dynamic_config or {})
        self._search_attributes = dict(search_attributes or {})
        self._database = (
            None if in_memory or self.data_dir is None else self.data_dir / "temporal.db"
        )
        self._process = ServerProcess(
            "Temporal",
            pid_file=self.data_dir and self.data_dir / "temporal.pid.json",
            log=self.data_dir / "temporal.log" if self.data_dir else Path("/dev/null"),
            signals=_SIGNALS,
        )

    @property
    def address(self) -> str:
        """``host:port`` of the frontend."""
        return f"{HOST}:{self.port}"

    @property
    def ui_url(self) -> str | None:
        """Address of the Web UI, None without one."""
        return None if self.ui_port is None else f"http://{HOST}:{self.ui_port}"

    @property
    def pid(self) -> int:
        """The pid of the server."""
        return self._process.pid

    async def start(self) -> None:
        """Start it and return when its namespaces answer.

        A server of this folder that a killed owner left behind is stopped first.

        Raises:
            EmbeddedError: it cannot run here; one sentence with the cure.
        """
        try:
            await self._start()
        except OSError as error:
            await self.stop()
            raise unwritable(self.data_dir or Path("/dev/null"), error) from error
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop it; harmless when it does not run."""
        await self._process.stop()

    async def wait(self) -> int:
        """Wait until it ends, by itself or not, and return its exit code."""
        return await self._process.wait()

    async def stop_orphan(self) -> bool:
        """Stop what a killed owner left running in this folder; True when there was something."""
        return await self._process.stop_orphan()

    async def _start(self) -> None:
        program = await asyncio.to_thread(temporal_cli)
        if self.data_dir is not None:
            await asyncio.to_thread(self.data_dir.mkdir, parents=True, exist_ok=True)
        await self.stop_orphan()
        self._choose_ports()
        self._process.spawn([program, *self._arguments()], port=self.port, env=ENVIRONMENT)
        await self._ready()

    def _choose_ports(self) -> None:
        if self.port:
            require_free(self.port, "--temporal-port")
        else:
            self.port = free_port()
        if self.ui_port:
            require_free(self.ui_port, "--ui-port")
        elif self.ui_port == 0:
            self.ui_port = free_port()

    def _arguments(self) -> list[str]:
        arguments = ["server", "start-dev", "--ip", HOST, "--port", str(self.port)]
        if self.ui_port is None:
            arguments.append("--headless")
        else:
            arguments += ["--ui-port", str(self.ui_port), "--ui-disable-news-fetch"]
        if self._database is not None:
            arguments += ["--db-filename", str(self._database)]
        for namespace in self._namespaces:
            arguments += ["--namespace", namespace]
        for name, value in self._dynamic_config.items():
            arguments += ["--dynamic-config-value", f"{name}={json.dumps(value)}"]
        for name, kind in self._search_attributes.items():
            arguments += ["--search-attribute", f"{name}={kind}"]
        return arguments

    async def _ready(self) -> None:
        deadline = time.monotonic() + _READY_WITHIN
        await self._listening(deadline)
        waiting_for = {"default", *self._namespaces}
        while waiting_for:
            self._check(deadline)
            with contextlib.suppress(RPCError, RuntimeError):
                client = await ServiceClient.connect(ConnectConfig(target_host=self.address))
                while waiting_for:
                    namespace = min(waiting_for)
                    await client.workflow_service.describe_namespace(
                        DescribeNamespaceRequest(namespace=namespace),
                        timeout=timedelta(seconds=5),
                    )
                    waiting_for.remove(namespace)
                return
            await asyncio.sleep(0.05)

    async def _listening(self, deadline: float) -> None:
        """Wait for the port; cheaper to ask again and again than a gRPC connection."""
        while True:
            self._check(deadline)
            try:
                _, writer = await asyncio.open_connection(HOST, self.port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            await writer.wait_closed()
            return

    def _check(self, deadline: float) -> None:
        if self._process.exit_code is not None:
            raise self._process.death()
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"Temporal did not answer within {_READY_WITHIN:.0f} s: {self._process.said()}",
                cure=f"see its log {self._process.log}",
            )
