"""A Temporal server that lets thirty calls a second through, and six hundred windows at once.

The only test with a ratio of times: that a limit costs no more than this is a promise. The rival is
a bare loop on an equal server in the same run, which calls again and again until it is let through.
"""

from __future__ import annotations

import pytest

from benchmarks.arena import arena, postgres
from benchmarks.contestants import NotReadyError, engine, floor

pytestmark = pytest.mark.slow

COUNT = 600
LIMITS = {"frontend.namespaceRPS": 30, "frontend.namespaceBurstRatio": 1.0}
PAUSE_MS = 20


@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_limited_server_is_used_to_the_full_and_no_window_starves(replicas: int) -> None:
    async with postgres() as server:
        async with arena(server, limits=LIMITS) as place:
            bare = await floor(9, PAUSE_MS)(place, COUNT, replicas, 1)
        lead = 2.0
        while True:
            try:
                async with arena(server, limits=LIMITS) as place:
                    ours = await engine(place, COUNT, replicas, lead)
            except NotReadyError:
                lead *= 2
                assert lead < 9, "the machine is too busy to prepare"
            else:
                break
    assert len(ours.lags) == COUNT
    assert bare.started > COUNT / LIMITS["frontend.namespaceRPS"] * 0.8, "nothing was limited"
    figures = f"{ours.started:.1f} s, the bare loop {bare.started:.1f} s"
    assert ours.started <= 1.5 * bare.started, figures
