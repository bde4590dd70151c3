"""A Temporal server that lets thirty calls a second through, and four hundred windows at once.

The only test with a ratio of times: that a limit costs no more than this is a promise. The rival is
a bare loop on an equal server in the same run, which calls again and again until it is let through.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from benchmarks.arena import arena, postgres
from benchmarks.contestants import NotReadyError, engine, floor
from benchmarks.runs import Herd
from engine.embedded import PostgresServer

pytestmark = [pytest.mark.prove, pytest.mark.slow]

COUNT = 400
LIMITS = {"frontend.namespaceRPS": 30, "frontend.namespaceBurstRatio": 1.0}
PAUSE_MS = 20
REPLICAS = 3


async def prepared_in_time(server: PostgresServer, replicas: int) -> Herd:
    """Let the engine do it; once more, with more time, when preparing took too long."""
    for lead in (2.0, 4.0):
        with suppress(NotReadyError):
            async with arena(server, limits=LIMITS) as place:
                return await engine(place, COUNT, replicas, lead)
    raise AssertionError("the machine is too busy to prepare")


async def test_a_limited_server_is_used_to_the_full_and_no_window_starves() -> None:
    async with postgres() as server:
        async with arena(server, limits=LIMITS) as place:
            bare = await floor(9, PAUSE_MS)(place, COUNT, REPLICAS, 1)
        ours = await prepared_in_time(server, REPLICAS)
    assert len(ours.lags) == COUNT
    assert bare.started > COUNT / LIMITS["frontend.namespaceRPS"] * 0.8, "nothing was limited"
    figures = f"{ours.started:.1f} s, the bare loop {bare.started:.1f} s"
    assert ours.started <= 1.5 * bare.started, figures
