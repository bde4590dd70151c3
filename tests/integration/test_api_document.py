"""The OpenAPI document: whatever it allows is answered, and every error in it can be reached."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from engine.api import requests
from engine.api.access import LIMITED, ROUTES
from engine.api.app import listening, serving
from engine.ledger import RequestKey, Subscription
from engine.schedules import Hook, Rate
from engine.views import json_text
from engine.views.answers import DETAILED_SCHEDULE
from tests.examples import examples
from tests.rest import BILLING, PATH, RestApi, rest_api

EXAMPLES = int(os.environ.get("SCHED_PROVE_EXAMPLES", examples(3)))
CONFIG = Path(__file__).with_name("schemathesis.toml")
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance,
    response_schema_conformance, response_headers_conformance, positive_data_acceptance,
]  # fmt: skip


# --- whatever the document allows ---


class Served:
    """An API in a thread of its own, because schemathesis asks from outside."""

    def __init__(self, database_url: str) -> None:
        self._url, self._ready = database_url, threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._ready.wait(20)

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with rest_api(self._url, open_door=False) as api:
            self.tokens = {
                "all": await api.token("all"),
                "read": await api.token("read", "read"),
                "operate": await api.token("operate", "operate"),
                "some": await api.token("some", "operate", keys=["billing.*"]),
                "keyed": await api.token("keyed", "admin", keys=["billing.*"]),
            }
            place = listening("127.0.0.1", 0)
            self.address = f"http://127.0.0.1:{place.getsockname()[1]}"
            async with serving(api.app, place):
                self._ready.set()
                await self._stop.wait()

    def close(self) -> None:
        assert self._loop
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)


@pytest.fixture(scope="module")
def served(shared_database_url) -> Iterator[Served]:
    api = Served(shared_database_url)
    yield api
    api.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("caller", ["all", "some", pytest.param(None, marks=pytest.mark.prove)])
def test_no_request_that_the_document_allows_makes_the_server_fail(served, caller):
    """More examples: SCHED_PROVE_EXAMPLES=200."""
    schema = schemathesis.openapi.from_url(
        f"{served.address}/api/v1/openapi.json", config=SchemathesisConfig.from_path(CONFIG)
    )
    schema.validate()
    token = served.tokens.get(caller)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    asked = []
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        asked.append(operation.label)

        @given(case=operation.as_strategy())
        @settings(
            max_examples=EXAMPLES if caller == "all" else 1, deadline=None, database=None,
            derandomize=True, phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def ask(case: schemathesis.Case) -> None:
            for name in ("authorization", "Authorization"):
                case.headers.pop(name, None)
            answer = case.call(headers=headers)
            if token is None:
                assert answer.status_code == 401
            case.validate_response(answer, checks=CHECKS)

        ask()
    assert len(asked) == len(ROUTES)


@pytest.mark.prove
@pytest.mark.timeout(600)
@pytest.mark.parametrize("caller", ["all", "read", "operate", "some", "keyed"])
def test_every_check_holds_for_what_the_document_allows_and_for_what_it_does_not(served, caller):
    """Some six thousand requests: each boundary of each parameter, valid or not, and methods."""
    asked = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run",
        f"{served.address}/api/v1/openapi.json", "--checks", "all", "--max-examples",
        str(EXAMPLES * 2), "--phases", "examples,coverage,fuzzing", "--continue-on-failure",
        "--header", f"Authorization: Bearer {served.tokens[caller]}",
    ]  # fmt: skip
    done = subprocess.run(asked, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


# --- every error that the document names ---


@pytest.fixture
async def api(shared_database_url):
    rates = {kind: Rate(MOST, timedelta(minutes=1)) for kind in LIMITED if kind != "refused"}
    async with rest_api(shared_database_url, rates=rates) as found:
        await found.service.schedule_repeat("noop", key="mine", everyMs=60000)
        await found.service.schedule_repeat("noop", key="gone", everyMs=60000)
        await found.service.retire("gone")
        await found.service.declare_hook("https://mine.example", secret=SECRET)
        filed = Hook.of("https://filed.example", secret=SECRET)
        async with found.ledger.transaction() as transaction:
            await transaction.declare_hooks("default", [filed], origin="file", by="x", only=False)
        yield found


SECRET = "${env:HOOK}"  # noqa: S105 - the name of a variable
HOOK_IDS = {
    name: Subscription.of_hook(
        Hook.of(f"https://{name}.example", secret=SECRET), "default", "api"
    ).short_name
    for name in ("mine", "filed", "unknown")
}
MOST = 30
"""Requests of each kind that the callers of these tests may make."""

GOOD: dict[str, Any] = {
    f"POST {PATH}": BILLING,
    f"PUT {PATH}/{{key}}": {"workflow": "noop", "cron": "0 2 * * *"},
    f"PATCH {PATH}/{{key}}": {"description": "x"},
    f"POST {PATH}/{{key}}/reschedule": {"cron": "0 3 * * *"},
    f"POST {PATH}/{{key}}/rename": {"key": "billing.renamed"},
    f"POST {PATH}/{{key}}/backfill": {
        "from": "2026-11-01T00:00:00Z", "to": "2026-11-01T01:00:00Z", "dryRun": True,
    },
    f"POST {PATH}/{{key}}/skip": {"at": "2030-01-01T00:00:00Z"},
    f"POST {PATH}/{{key}}/unskip": {"at": "2030-01-01T00:00:00Z"},
    f"POST {PATH}/{{key}}/rerun": {"bucket": 1},
    "POST /api/v1/hooks": {"url": "https://mine.example", "secret": SECRET},
    "POST /api/v1/plan": {"schedules": [{"key": "a", "workflow": "noop", "everyMs": 60000}]},
    "POST /api/v1/simulate": {"schedules": [{"key": "a", "workflow": "noop", "everyMs": 60000}]},
}  # fmt: skip


class Provoked:
    """Requests that provoke each status, by route."""

    def __init__(self, api: RestApi, monkeypatch) -> None:
        self.api, self.monkeypatch = api, monkeypatch

    async def ask(self, route: str, key: str = "mine", **changed: Any) -> int:
        method, path = route.split(" ")
        options: dict[str, Any] = {"headers": {"If-Match": "*"}, "params": {}}
        if method in {"POST", "PUT", "PATCH"}:
            options["json"] = GOOD.get(route, {})
        if path.endswith("simulate"):
            options["params"] = {"from": "2026-12-01T00:00:00Z", "to": "2026-12-02T00:00:00Z"}
        options["headers"] |= changed.pop("headers", {})
        if "content" in changed:
            options.pop("json", None)
            options["headers"].setdefault("Content-Type", "application/json")
        path = path.format(key=key, hook=HOOK_IDS.get(key, "x" * 501), workflow_id="a:b")
        async with self.api.client() as client:
            answer = await client.request(method, path, **{**options, **changed})
        return answer.status_code

    async def status_400(self, route: str) -> int:
        if "{" in route:
            return await self.ask(route, key="no key")
        options: dict[str, Any] = {"params": {"limit": "0", "prune": "maybe", "from": "x"}}
        if route.startswith("POST"):
            options["content"] = b"["
        return await self.ask(route, **options)

    async def status_401(self, route: str) -> int:
        return await self.ask(route, headers={"Authorization": "Bearer nothing"})

    async def status_403(self, route: str) -> int:
        return await self.ask(route, headers={"Origin": "https://evil.example"})

    async def status_404(self, route: str) -> int:
        return await self.ask(route, key="unknown", params={"key": "unknown"})

    async def _in_work_elsewhere(self, route: str, digest: str) -> int:
        of = RequestKey("loopback", route, f"key-{digest}")
        self.monkeypatch.setattr(requests, "_WAITS", 0.0)
        if digest == "same":
            self.monkeypatch.setattr(requests, "request_digest", lambda *_: digest)
        await self.api.ledger.access.claim(
            of, digest, lease=timedelta(minutes=1), kept=timedelta(days=1)
        )
        status = await self.ask(route, headers={"Idempotency-Key": f"key-{digest}"})
        self.monkeypatch.undo()
        return status

    async def status_409(self, route: str) -> int:
        if route.startswith("POST"):
            assert await self._in_work_elsewhere(route, "same") == 409
        if route == f"POST {PATH}":
            return await self.ask(route, json={**BILLING, "key": "filed"})
        if route == "POST /api/v1/hooks":
            return await self.ask(route, json={"url": "https://filed.example", "secret": SECRET})
        if "{hook}" in route:
            return await self.ask(route, key="filed")
        if route.endswith(("plan", "simulate")):
            return 409
        if route.endswith("/cancel"):
            return await self.ask(route, key="filed")
        return await self.ask(route, key="filed" if route[:3] in {"DEL", "PUT"} else "gone")

    async def status_412(self, route: str) -> int:
        return await self.ask(route, headers={"If-Match": '"99"'})

    async def status_413(self, route: str) -> int:
        return await self.ask(route, content=b" " * 2_000_000)

    async def status_415(self, route: str) -> int:
        return await self.ask(route, content=b"{}", headers={"Content-Type": "text/plain"})

    async def status_422(self, route: str) -> int:
        if route.startswith("GET"):
            backwards = {"from": "2026-12-02T00:00:00Z", "to": "2026-12-01T00:00:00Z"}
            return await self.ask(route, params=backwards)
        if route.startswith(("PUT", "PATCH")):
            wrong = {"events": ["schedule.no"]} if "{hook}" in route else {"cron": "no"}
            return await self.ask(route, json=wrong)
        return await self._in_work_elsewhere(route, "other")

    async def status_428(self, route: str) -> int:
        async with self.api.client() as client:
            return (await client.patch(f"{PATH}/mine", json={})).status_code

    async def status_429(self, route: str) -> int:
        if "GET" in route:
            self.monkeypatch.setattr(requests, "_STREAMS", 0)
            status = await self.ask(route, headers={"Accept": "text/event-stream"})
            self.monkeypatch.undo()
            return status
        return [await self.ask(route) for _ in range(MOST + 1)][-1]

    async def status_503(self, route: str) -> int:
        return await self.ask(route)


@pytest.mark.timeout(120)
async def test_every_error_of_the_document_can_be_reached(api, monkeypatch):
    provoked = Provoked(api, monkeypatch)
    errors = {
        (f"{method.upper()} {path}", int(status))
        for path, operations in api.app.openapi()["paths"].items()
        for method, operation in operations.items()
        for status in operation["responses"]
        if int(status) >= 400
    }
    # Those that use something up come last.
    for route, status in sorted(errors, key=lambda each: (each[1] in {429, 503}, each[1], each[0])):
        if status == 503:
            continue
        found = await getattr(provoked, f"status_{status}")(route)
        assert found == status, f"{route} answers {found} in place of {status}"
    await api.ledger.close()
    for route, status in sorted(errors):
        if status == 503:
            assert await provoked.status_503(route) == 503, route


async def test_an_answer_is_what_the_document_says(api):
    """The document has the model; the answer is made without it."""
    row = await api.service.schedule("mine")
    given = DETAILED_SCHEDULE(row, waiting=None, warnings=[])
    answer = DETAILED_SCHEDULE.model.model_validate(given)
    assert answer.model_dump(mode="json", by_alias=True) == json.loads(json_text(given))


async def test_every_operation_has_a_description_and_every_body_an_example(api):
    document = api.app.openapi()
    assert document["openapi"].startswith("3.1")
    schemas = document["components"]["schemas"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("description"), (method, path)
            for media in operation.get("requestBody", {}).get("content", {}).values():
                name = media["schema"].get("$ref", "").rpartition("/")[2]
                examples = media.get("examples") or schemas.get(name, {}).get("examples")
                assert examples, (method, path)
