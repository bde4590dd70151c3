"""Ports of the loopback address: which is free, and who sits on one that is not."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from engine.embedded.identity import command_line
from engine.errors import EmbeddedError

HOST = "127.0.0.1"
_LISTEN = "0A"  # the state column of /proc/net/tcp


def free_port() -> int:
    """Return a free port that the kernel will not hand to anybody else for a minute.

    The closed connection below leaves the port in TIME_WAIT: servers may bind it (they set
    SO_REUSEADDR), while the kernel no longer picks it for those who ask for any port.
    """
    with socket.socket() as listener, socket.socket() as visitor:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else nobody may bind it
        listener.bind((HOST, 0))
        listener.listen(1)
        port: int = listener.getsockname()[1]
        visitor.connect((HOST, port))
        listener.accept()[0].close()
    return port


def require_free(port: int, option: str) -> None:
    """Check that a server can listen on the port.

    Raises:
        EmbeddedError: it cannot; the sentence names the option that chooses another one.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OverflowError:
            raise EmbeddedError(
                f"{port} is not a port", cure=f"{option} takes 1 to 65535"
            ) from None
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise EmbeddedError(
                    f"port {port} cannot be used ({error.strerror})",
                    cure=f"choose another with {option}",
                ) from error
            raise EmbeddedError(
                f"port {port} is taken{_by_whom(port)}",
                cure=f"stop that process or choose another port with {option}",
            ) from None


def _by_whom(port: int) -> str:
    inodes = _listening(port)
    for link in Path("/proc").glob("[0-9]*/fd/*") if inodes else ():
        try:
            target = os.readlink(link)  # noqa: PTH115 - Path.readlink builds a path of "socket:[1]"
        except OSError:
            continue  # it ended meanwhile, or is another user's
        if target in inodes:
            pid = int(link.parts[2])
            program = Path(command_line(pid).partition(" ")[0]).name
            return f" by process {pid} ({program})" if program else f" by process {pid}"
    return ""


def _listening(port: int) -> set[str]:
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            rows = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:  # not Linux, or no IPv6
            continue
        for row in rows:
            columns = row.split()
            if columns[3] == _LISTEN and int(columns[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{columns[9]}]")
    return found
