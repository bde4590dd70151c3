"""What `sched up` is to its servers, as a program: starts them, says so, waits to be ended.

Arguments as JSON: ``folder``, ``ports`` (Temporal, Web UI, PostgreSQL), and ``uid`` and ``gid``
of the user to become once everything is imported (who need not be able to enter the folder of
this Python).
"""

# ruff: noqa: ASYNC240 - nothing else runs in this loop

from __future__ import annotations

import asyncio
import codecs
import concurrent.futures.thread  # noqa: F401 - see below
import json
import os
import sys
from pathlib import Path

import asyncpg
import psutil  # noqa: F401 - see below

from engine.embedded import servers
from engine.errors import EmbeddedError


async def own(folder: Path, ports: tuple[int, int, int]) -> None:
    temporal_port, ui_port, postgres_port = ports
    try:
        async with servers(
            folder,
            temporal_port=temporal_port,
            ui_port=ui_port,
            postgres_port=postgres_port,
            durable=False,
        ) as running:
            assert running.postgres is not None
            connection = await asyncpg.connect(running.postgres.url, ssl=False)
            await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
            user = Path(f"/proc/{running.postgres.pid}").stat().st_uid
            await connection.close()
            say(
                temporal=running.temporal.pid,
                postgres=running.postgres.pid,
                postgres_user=user,
                url=running.postgres.url,
            )
            await asyncio.to_thread(sys.stdin.read)
    except EmbeddedError as error:
        say(error=str(error))


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201 - how it speaks to the test


if __name__ == "__main__":
    wish = json.loads(sys.argv[1])
    if wish.get("uid"):
        codecs.lookup("ascii")  # what Python loads late could be out of this user's reach
        os.setgroups([])
        os.setgid(wish["gid"])
        os.setuid(wish["uid"])
    asyncio.run(own(Path(wish["folder"]), tuple(wish["ports"])))
    sys.stdout.flush()
    os._exit(0)  # interpreter exit after a Temporal client may abort
