"""A replica's own connection to Temporal, made while the server is away."""

from __future__ import annotations

import pytest
from temporalio.client import Client

from engine.errors import TemporalUnavailable
from engine.runtime.dispatch.starter import patient_client


async def test_a_replica_that_cannot_connect_waits_and_begins_no_loop_without_a_connection():
    """The calls of a client that never connected raise RuntimeError, which no loop expects."""
    client = await Client.connect("127.0.0.1:1", lazy=True)
    with pytest.raises(TemporalUnavailable, match="cannot be reached"):
        await patient_client(client)
