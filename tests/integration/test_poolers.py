"""A pooler between a worker and its ledger: it works in session mode, and is refused in others."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from engine.errors import LedgerError
from engine.ledger import Ledger
from engine.ledger.postgres.connections import Connections
from tests.waiting import eventually

IGNORED = (
    "idle_in_transaction_session_timeout, transaction_timeout, statement_timeout, lock_timeout,"
    " tcp_user_timeout, jit, search_path"
)
Pooler = Callable[..., AbstractAsyncContextManager[str]]

pytestmark = pytest.mark.skipif(not shutil.which("pgbouncer"), reason="needs pgbouncer")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.fixture
def pooler(database_url: str) -> Iterator[Pooler]:
    folder = tempfile.TemporaryDirectory()  # PgBouncer is not root's, and cannot read `tmp_path`
    Path(folder.name).chmod(0o755)

    @asynccontextmanager
    async def through(mode: str, *, ignored: str = IGNORED) -> AsyncIterator[str]:
        """The address of the database behind a PgBouncer of this mode."""
        place, port, path = urlsplit(database_url), free_port(), Path(folder.name) / "pgbouncer.ini"
        path.write_text(
            f"[databases]\n* = host={place.hostname} port={place.port} user={place.username}"
            f" password={place.password}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
            f"ignore_startup_parameters = {ignored}\n"
        )
        path.chmod(0o644)
        user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
        process = await asyncio.create_subprocess_exec(
            "pgbouncer", "-q", str(path), user=user, cwd="/",
            stderr=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:

            async def listens() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            await eventually(listens)
            yield database_url.replace(f":{place.port}/", f":{port}/")
        finally:
            process.terminate()
            await process.wait()

    with folder:
        yield through


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_that_shares_sessions_is_refused_with_one_sentence(pooler: Pooler, mode):
    async with pooler(mode) as url:
        with pytest.raises(LedgerError, match="pooler in transaction mode") as raised:
            await Ledger.connect(url)
    assert type(raised.value) is LedgerError, "it is not waited for"


async def test_a_pooler_that_refuses_a_setting_is_told_as_one(pooler: Pooler):
    async with pooler("session", ignored="extra_float_digits") as url:
        with pytest.raises(LedgerError, match=r"is a pooler, and refuses: .*; connect directly"):
            await Ledger.connect(url)


async def test_a_pooler_in_session_mode_works_and_our_time_limits_hold(pooler: Pooler):
    async with pooler("session") as url:
        ledger = await Ledger.connect(url)
        assert await ledger.schedules() == []
        await ledger.close()
        connections = await Connections.open(url, schema="sched", most=2)
        (row,) = await connections.fetch("SELECT current_setting('transaction_timeout') AS limit")
        assert row["limit"] == "4s"
        await connections.close()
