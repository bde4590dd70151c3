"""``sched api`` and ``sched token`` as processes, and the guide of the API, command by command."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from engine.api.app import options_of
from engine.cli.app import run
from engine.runtime import Settings
from tests.acceptance.fleet import ROOT, SCHED
from tests.rest import BILLING, PATH, rest_api
from tests.waiting import eventually

GUIDE = (ROOT / "docs/api.md").read_text(encoding="utf-8")
CLOSES = {"Connection": "close"}
EXAMPLES = re.findall(r"^```bash\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


class Process:
    """A running ``sched api``."""

    def __init__(self, folder: Path, url: str, *options: str, **environment: str) -> None:
        self._log = folder / "api.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(SCHED), "api", "--port", "0", *options], cwd=folder, stdout=log, stderr=log,
                env={**os.environ, "SCHED_DATABASE_URL": url, "PYTHONUNBUFFERED": "1",
                     **environment},
            )  # fmt: skip

    @property
    def output(self) -> str:
        return self._log.read_text()

    async def address(self) -> str:
        """Return the address that it has printed."""

        def found() -> str:
            assert self._process.poll() is None, self.output
            line = re.search(r"API at (http://\S+/api/v1),", self.output)
            return line[1] if line else ""

        return await eventually(found, timeout=30)

    def limit_descriptors(self, most: int) -> None:
        """Let it have no more files and connections."""
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (most, most))

    def stop(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(20)


@pytest.fixture
def sched(url, monkeypatch, capsys):
    """Run a command in this process; return its code and both outputs."""
    monkeypatch.setenv("SCHED_DATABASE_URL", url)
    monkeypatch.setenv("COLUMNS", "200")

    async def command(*arguments: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(run, list(arguments))
        return code, *capsys.readouterr()

    return command


@pytest.fixture
async def url(database_url) -> AsyncIterator[str]:
    """A ledger whose workers serve the workflows of the guide."""
    async with rest_api(database_url, namespace="default"):
        yield database_url


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_guide_is_followed_to_the_letter_with_a_token(url, sched, tmp_path):
    _, printed, _ = await sched("token", "create", "guide", "--scope", "admin")
    token, told = printed.splitlines()
    assert told == "guide may admin every schedule; `sched token revoke` ends it"
    process = Process(tmp_path, url)
    try:
        address = await process.address()
        root = address.removesuffix("api/v1")
        assert process.output == f"API at {address}, page at {root} (with a token)\n"
        assert len(EXAMPLES) >= 6
        for example in EXAMPLES:
            done = await asyncio.to_thread(
                subprocess.run, ["bash", "-euo", "pipefail", "-c", example], cwd=tmp_path,
                capture_output=True, text=True, timeout=30,
                env={**os.environ, "API": address, "TOKEN": token},
            )  # fmt: skip
            assert done.returncode == 0, f"{example}\n{done.stdout}\n{done.stderr}"
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as client:
            found = (await client.get(f"{address}/schedules/billing.nightly")).json()
            assert (found["when"], found["paused"]) == ("30 2 * * *", None)
            _, listed, _ = await sched("token", "list")
            assert re.search(r"guide +admin +\* +in force", listed)
            assert "127.0.0.1" in listed
            assert token.split("_", 2)[2] not in listed
            assert "token guide at 127.0.0.1" in (await sched("log", "billing.nightly"))[1]
            assert (await sched("token", "revoke", "guide"))[0] == 0
            paused = await client.post(f"{address}/schedules/filed/pause", json={})
            assert paused.status_code == 401, "it changes nothing more"

            async def refused() -> bool:
                return (await client.get(f"{address}/schedules")).status_code == 401

            await eventually(refused, timeout=5)
    finally:
        assert process.stop() == 0
    assert token not in process.output


@pytest.mark.prove
async def test_more_half_requests_than_descriptors_keep_nobody_out(url, tmp_path):
    process = Process(tmp_path, url, SCHED_LOG_FORMAT="text")
    held: list[socket.socket] = []
    try:
        place = urlsplit(await process.address())
        process.limit_descriptors(256)
        async with httpx.AsyncClient(base_url=f"http://{place.netloc}", timeout=20) as client:
            for number in range(400):
                held.append(socket.create_connection((place.hostname, place.port), 20))
                held[-1].send(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
                if number % 50 == 49:
                    assert (await client.get("/healthz", headers=CLOSES)).status_code == 200
                    assert (await client.get("/signin", headers=CLOSES)).status_code == 200
    finally:
        for each in held:
            each.close()
        assert process.stop() == 0
    assert "connections of 127.0.0.1 are closed: there are 65 of them" in process.output


async def test_it_refuses_to_be_reached_from_elsewhere_without_a_token(sched, monkeypatch):
    everywhere = "0.0.0.0"  # noqa: S104
    code, _, error = await sched("api", "--host", everywhere, "--port", "0")
    assert code == 2
    assert error == (
        "sched: SCHEDULE_SETTING_INVALID: --host 0.0.0.0 can be reached from other machines, and"
        " there is no token; make one with `sched token create`, or set SCHED_API_TOKEN\n"
    )
    guessable = "s" * 31
    monkeypatch.setenv("SCHED_API_TOKEN", guessable)
    code, _, error = await sched("api")
    assert code == 2
    assert "write 32 or more random ASCII characters" in error
    assert guessable not in error


async def test_the_token_of_the_environment_has_full_rights(url):
    tokens = {"SCHED_API_TOKEN": "t" * 40}
    options = options_of(Settings(), tokens, host="127.0.0.1")
    assert "t" * 40 not in repr(options)
    async with rest_api(url, tokens=tokens, open_door=options.open_door) as api:
        async with api.client() as client:
            assert (await client.get(PATH)).status_code == 401
        async with api.client("t" * 40) as client:
            assert (await client.post(PATH, json=BILLING)).status_code == 201
        (action, *_) = await api.service.actions(key=BILLING["key"])
        assert action.by == "SCHED_API_TOKEN at 127.0.0.1"
