"""Ports of the loopback address: selection of free ones, and the holders of taken ones."""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from engine.embedded.process import command_line, folder_of, parent
from engine.errors import EmbeddedError

HOST = "127.0.0.1"
_LISTEN = "0A"  # the state column of /proc/net/tcp
_SCHED_UP = re.compile(r"\b(sched|engine\.cli)( .*)? up( |$)")


def free_port() -> int:
    """Return a free port that the kernel will not assign to another process for a minute.

    The closed connection below leaves the port in TIME_WAIT: servers may bind it (they set
    SO_REUSEADDR), while the kernel does not pick it for a process that requests any port.
    """
    with socket.socket() as listener, socket.socket() as visitor:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # else no server may bind it
        listener.bind((HOST, 0))
        listener.listen(1)
        port: int = listener.getsockname()[1]
        visitor.connect((HOST, port))
        listener.accept()[0].close()
    return port


def require_free(wanted: Mapping[str, int | None]) -> None:
    """Check that servers can listen on their ports.

    Args:
        wanted: the port by the option that chooses it; 0 and None mean any port.

    Raises:
        EmbeddedError: they cannot; one sentence names every taken port, and all options with free
            ports.
    """
    ports = {option: port for option, port in wanted.items() if port}
    taken = [port for option, port in ports.items() if _is_taken(port, option)]
    if not taken:
        return
    holders: dict[str, list[str]] = {}
    for port in taken:
        holders.setdefault(_holder(port), []).append(str(port))
    said = ", ".join(_sentence(numbers, holder) for holder, numbers in holders.items())
    chosen = dict(ports)
    for option, port in ports.items():
        if port in taken:
            chosen[option] = _another(port, option, chosen.values())
    options = " ".join(f"{option} {port}" for option, port in chosen.items())
    what = "it" if len(holders) == 1 else "them"
    raise EmbeddedError(said, cure=f"stop {what}, or add {options}")


def _is_taken(port: int, option: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OverflowError:
            raise EmbeddedError(
                f"{port} is not a port", cure=f"{option} takes 1 to 65535"
            ) from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
            raise EmbeddedError(
                f"port {port} cannot be used ({error.strerror})",
                cure=f"choose another with {option}",
            ) from error
    return False


def _another(port: int, option: str, chosen: Iterable[int]) -> int:
    """Return a free port, if possible one that is easy to remember: 17233 for 7233."""
    for near in range(port + 10_000, 65_536, 10_000):
        if near not in chosen and not _is_taken(near, option):
            return near
    return free_port()


def _sentence(ports: Sequence[str], holder: str) -> str:
    named = f"port {ports[0]} is" if len(ports) == 1 else f"ports {', '.join(ports)} are"
    return f"{named} taken{holder and f' by {holder}'}"


def _holder(port: int) -> str:
    """Return a description of the process that listens on the port, if this user can see it."""
    inodes = _listening(port)
    for link in Path("/proc").glob("[0-9]*/fd/*") if inodes else ():
        try:
            target = os.readlink(link)  # noqa: PTH115 - Path.readlink builds a path of "socket:[1]"
        except OSError:
            continue  # it has ended, or belongs to another user
        if target in inodes:
            pid = int(link.parts[2])
            program = Path(command_line(pid).partition(" ")[0]).name
            return _up_above(pid) or (f"process {pid} ({program})" if program else f"process {pid}")
    return ""


def _up_above(pid: int) -> str:
    """Return a description of the `sched up` that owns this server: it is the one to stop."""
    owner = parent(pid)
    if owner is None or not _SCHED_UP.search(command_line(owner)):
        return ""
    folder = folder_of(owner)
    return f"another `sched up` (process {owner}{f' in {folder}' if folder else ''})"


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
