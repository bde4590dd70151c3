"""Connects to the servers that the environment names."""

from __future__ import annotations

import os
from typing import Any

from temporalio.client import Client
from temporalio.envconfig import ClientConfig

from engine.errors import TemporalUnavailable


def temporal_target() -> dict[str, Any]:
    """Return the connect arguments that Temporal's own variables and profile name."""
    config = ClientConfig.load_client_connect_config(profile=os.environ.get("TEMPORAL_PROFILE"))
    return {"target_host": "localhost:7233", "namespace": "default", **config}


async def connect_temporal() -> Client:
    """Connect to Temporal.

    Raises:
        TemporalUnavailable: when nothing answers there.
    """
    target = temporal_target()
    try:
        return await Client.connect(**target)
    except (RuntimeError, OSError) as error:
        raise TemporalUnavailable(
            f"no Temporal server answers at {target['target_host']}",
            cure="start it, or set TEMPORAL_ADDRESS",
        ) from error


def database_url() -> str | None:
    """Return ``SCHED_DATABASE_URL``, or None when the engine is to run stateless."""
    return os.environ.get("SCHED_DATABASE_URL") or None


def database_schema() -> str:
    """Return ``SCHED_SCHEMA``."""
    return os.environ.get("SCHED_SCHEMA", "sched")
