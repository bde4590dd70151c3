"""Check of a database address, and where it is; separate, as commands may not need the driver."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl, urlsplit

from engine.errors import LedgerError

_FORM = "write postgresql://user:password@host:5432/database"
_ENCODED = f"{_FORM}, and in a password %2F for /, %23 for #, %3F for ?, %5B for [ and %25 for %"
_SCHEMES = frozenset({"postgresql", "postgres"})
_PORTS = range(1, 1 << 16)
_PORT = re.compile(r":\d+$")


def checked_address(url: str, name: str = "SCHED_DATABASE_URL") -> str:
    """Return ``url`` if it is clearly the address of a PostgreSQL database.

    A driver would take part of an odd password for a host or a port, quote it in its error, or try
    forever to reach it. So the error here contains nothing of the address but its scheme.

    Args:
        url: the address.
        name: where it was given, for the error.

    Raises:
        LedgerError: it is not.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or not scheme.isalpha():
        raise _unusable(name, "is not the address of a PostgreSQL database", _FORM)
    if scheme.lower() not in _SCHEMES:
        raise _unusable(name, f"begins with {scheme}://, and the ledger is in PostgreSQL", _FORM)
    try:
        url.encode()
        parts = urlsplit(url)
        sound = _is_sound(parts)
    except ValueError:
        sound = False
    if not sound:
        raise _unusable(name, "cannot be divided into user, password, host and database", _ENCODED)
    return url


def place_of(url: str) -> str:
    """Return ``host:port`` of a sound address, or several with commas, for people.

    A folder, where the server has a socket, is its own place.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    hosts = parts.netloc.rpartition("@")[2] or options.get("host", "")
    port = options.get("port", "5432")
    return ",".join(
        each
        if each.startswith("/") or _PORT.search(each)
        else f"{each.rstrip(':') or 'localhost'}:{port}"
        for each in hosts.split(",")
    )


def _is_sound(parts: SplitResult) -> bool:
    """Return whether it splits as intended: no character of a password ends it early."""
    parse_qsl(parts.query, strict_parsing=bool(parts.query))
    if parts.fragment or "@" in parts.path or ("@" in parts.query and not parts.path):
        return False
    hosts = parts.netloc.rpartition("@")[2]
    return all(map(_is_host, hosts.split(",")))


def _is_host(text: str) -> bool:
    """Return whether it is ``host``, ``host:port`` or ``[address]:port``."""
    bracketed, bracket, port = text.rpartition("]")
    if not bracket:
        _, colon, port = text.partition(":")
    else:
        colon, port = port[:1], port[1:]
        if not bracketed.startswith("[") or colon not in {"", ":"}:
            return False
    return not colon or (port.isdecimal() and int(port) in _PORTS)


def _unusable(name: str, what: str, hint: str) -> LedgerError:
    return LedgerError(f"{name} {what}", hint=hint)
