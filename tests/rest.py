"""The REST API on a real ledger, and callers of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
from fastapi import FastAPI

from engine.api.app import create_app
from engine.api.requests import ApiOptions
from engine.ledger import Ledger, Scope
from engine.ledger.records import Serving
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.service import ScheduleService

ADDRESS = "http://127.0.0.1:8230"
PATH = "/api/v1/schedules"
SERVING = Serving("replica-a", "default", "sched", frozenset({"noop@1"}))
FILE = """
schedules:
  - {key: filed, workflow: noop, everyMs: 60000, overlap: skip}
  - {key: billing.filed, workflow: noop, cron: "0 2 * * *"}
"""
BILLING = {"key": "billing.nightly", "workflow": "noop", "cron": "0 2 * * *"}


@dataclass
class RestApi:
    """An API, without a server in between."""

    ledger: Ledger
    app: FastAPI
    service: ScheduleService = field(init=False)

    def __post_init__(self) -> None:
        self.service = ScheduleService(self.ledger, actor="test")

    def client(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        """Return a client of 127.0.0.1 that carries the token and these headers."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            given["Authorization"] = f"Bearer {token}"
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=given)

    async def token(self, name: str = "bot", scope: Scope = "admin", **options: Any) -> str:
        """Return a new token."""
        return (await self.service.create_token(name, scope=scope, **options)).secret

    async def stored(self) -> tuple[list[str], int]:
        """Return the keys of all schedules and the number of actions."""
        return (
            [row.key for row in await self.service.schedules()],
            len(await self.service.actions(limit=1000)),
        )


@asynccontextmanager
async def rest_api(
    database: str | Ledger, *, namespace: str | None = None, **options: Any
) -> AsyncIterator[RestApi]:
    """Yield an API on a ledger with two schedules of a file, whose workflow a worker serves.

    Args:
        database: its address, or a ledger whose connections it uses.
        namespace: by default one of its own.
        options: of the API.
    """
    namespace = namespace or f"test-{uuid4().hex}"
    if isinstance(database, str):
        ledger = await Ledger.connect(database, namespace=namespace, connections=5)
    else:
        ledger = Ledger(database._connections, namespace)
    await ledger.announce(SERVING, engine="0", tzdata="0", retention=timedelta(days=1))
    await apply(ledger, load_schedules(FILE), by="test")
    yield RestApi(ledger, create_app(ledger, ApiOptions(**{"open_door": True, **options})))
    if isinstance(database, str):
        await ledger.close()
