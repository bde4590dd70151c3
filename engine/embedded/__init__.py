"""Two embedded servers of ``sched up``: PostgreSQL 18 and the Temporal development server.

Each runs in its own process session, so that Ctrl-C reaches the workers first, and has a pid file,
so that the next start finds a server that ``kill -9`` left behind. They are not for production,
where ``TEMPORAL_*`` and ``SCHED_DATABASE_URL`` name the servers.
"""

import sys

from engine.errors import EmbeddedError

if sys.platform == "win32":
    raise EmbeddedError(
        "the servers of `sched up` and of the testing kit do not run on Windows",
        hint="use WSL, or set TEMPORAL_ADDRESS and SCHED_DATABASE_URL and start `sched worker`",
    )

from engine.embedded.postgres import PostgresServer
from engine.embedded.process import Server, folder_lock, free_port
from engine.embedded.servers import EmbeddedServers, servers
from engine.embedded.temporal import TemporalServer

__all__ = [
    "EmbeddedServers",
    "PostgresServer",
    "Server",
    "TemporalServer",
    "folder_lock",
    "free_port",
    "servers",
]
