"""Ends with 0 when the worker of this container has announced itself lately, else with 1.

A worker announces itself in the ledger every SCHED_HEARTBEAT, from the event loop that also
claims and starts: a worker that hangs, stands still, waits for the ledger, or at its start for
Temporal, falls silent. Three periods are allowed.

It finds the worker by the host name, so it is for one worker per container.
"""
# ruff: noqa: INP001 - a script of the image, in no package

from __future__ import annotations

import asyncio
import os
import socket
import sys

import asyncpg

from engine.schedules.terms import parse_duration

_LATEST = """
SELECT clock_timestamp() - max(seen_at) < 3 * $3::interval
FROM replicas WHERE namespace = $1 AND starts_with(replica, $2 || ':')
"""


async def announced() -> bool:
    """Whether the ledger has heard of this host's worker within three of its periods."""
    settings = {"search_path": os.environ.get("SCHED_SCHEMA", "sched")}
    connection = await asyncpg.connect(
        os.environ["SCHED_DATABASE_URL"], timeout=5, command_timeout=3, server_settings=settings
    )
    try:
        return bool(
            await connection.fetchval(
                _LATEST,
                os.environ.get("TEMPORAL_NAMESPACE", "default"),
                socket.gethostname(),
                parse_duration(os.environ.get("SCHED_HEARTBEAT") or "10s"),
            )
        )
    finally:
        await connection.close()


if __name__ == "__main__":
    try:
        healthy = asyncio.run(announced())
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        sys.exit(f"the ledger does not answer: {error}")
    sys.exit(0 if healthy else "this container's worker has not announced itself lately")
