"""Temporal client of a command; separate because most commands do not load Temporal's SDK."""

from __future__ import annotations

import os

from temporalio.client import Client

from engine.cli.target import Target
from engine.runtime.temporal_client import connect_temporal


async def connected(of: Target) -> Client:
    """Connect to the environment's Temporal server, or else to that of ``sched up``.

    Raises:
        TemporalUnavailable: the server does not answer.
    """
    elsewhere = os.environ.get("TEMPORAL_ADDRESS") or os.environ.get("TEMPORAL_PROFILE")
    here = {"target_host": of.temporal} if of.temporal and not elsewhere else {}
    return await connect_temporal(**here, namespace=of.namespace)
