"""The two servers of ``sched up``: PostgreSQL 18 and the Temporal development server.

Both live in a process session of their own, so that Ctrl-C reaches the workers first, and in
pid files, so that the next start finds what ``kill -9`` left behind. Nothing here is meant for
production: there the servers are named by ``TEMPORAL_*`` and ``SCHED_DATABASE_URL``.
"""

from engine.embedded.ports import free_port
from engine.embedded.postgres import PostgresServer
from engine.embedded.process import FolderLock
from engine.embedded.servers import EmbeddedServers, servers
from engine.embedded.temporal import TemporalServer

__all__ = [
    "EmbeddedServers",
    "FolderLock",
    "PostgresServer",
    "TemporalServer",
    "free_port",
    "servers",
]
