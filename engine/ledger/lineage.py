"""Asks a PostgreSQL server which history of which system it goes on with."""

from __future__ import annotations

import asyncpg

from engine.errors import LedgerError, LedgerUnavailable
from engine.ledger.connections import Connections
from engine.ledger.replica_records import Lineage

# The identifier is made by `initdb`, and a primary shares it with its standbys.
_SYSTEM = "SELECT system_identifier::text FROM pg_control_system()"
# Right at once: the control file has a new timeline only after the checkpoint that follows a
# promotion.
_TIMELINE = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint"


async def lineage_of(connections: Connections) -> Lineage:
    """Return what the server says of itself; None is what it, or the role's rights, keep back."""
    system = await _told(connections, _SYSTEM)
    timeline = await _told(connections, _TIMELINE)
    return Lineage(
        None if system is None else str(system), None if timeline is None else int(timeline)
    )


async def _told(connections: Connections, text: str) -> str | int | None:
    """Each question by itself: a function that may not be called fails its whole statement."""
    try:
        ((told,),) = await connections.fetch(text)
    except LedgerUnavailable:
        raise
    except (LedgerError, asyncpg.PostgresError):
        return None  # forbidden, or not there: managed databases differ
    return told  # type: ignore[no-any-return] # what the two statements above return
