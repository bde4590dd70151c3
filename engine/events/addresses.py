"""Guard of the addresses that webhooks may reach: the public internet, and what is allowed.

A file names the addresses, and the author of a schedule is not for that reason inside the network
of the workers. A name is resolved once for each delivery, every address that it has is
checked, and the connection goes to the one that was checked: a name that changes its mind between
the check and the connection gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host name; OSError if there are none."""

_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAT64: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
"""Its translation is the network's own, so nothing is known of what is behind it."""
_NEVER: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "fec0::/10",  # site-local, of before there were unique local addresses
            # Of the protocols' own assignments Python took some for public up to 3.11.9; one is
            # where machines of Oracle's cloud ask for their credentials, and 168.63.129.16 where
            # those of Azure do.
            "192.0.0.0/24",
            "168.63.129.16/32",
            "2002::/16",  # 6to4, given up; public in Python up to 3.11.9 and 3.12.3
            "192.88.99.0/24",  # its relays (RFC 7526)
            "3fff::/20",  # documentation; Python does not know it yet
        ),
    )
)
_ISATAP: Final = frozenset({0x5EFE, 0x2005EFE})
"""Of the last 64 bits the first 32, if the rest are an IPv4 address within the network."""
_PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
ALLOW_HINT: Final = "name it in SCHED_HOOKS_ALLOW of the workers if it is meant"


class AddressRefused(Exception):
    """An address that a webhook may not reach; the text has its host and no path."""


# --- addresses ---


def unpacked(address: Address) -> list[Address]:
    """Return an address, or the ones that packets to it may reach.

    IPv6 has ways to name an IPv4 address: mapped, through NAT64, behind 6to4 and ISATAP.
    """
    if not isinstance(address, ipaddress.IPv6Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
        return [address, ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address]


def is_public(address: Address) -> bool:
    """Return whether an address is one of the public internet, of one host."""
    return all(_is_public(each) for each in unpacked(address))


def _is_public(address: Address) -> bool:
    if any(address.version == each.version and address in each for each in _NEVER):
        return False
    if isinstance(address, ipaddress.IPv6Address) and (
        address in _LOCAL_NAT64 or address.scope_id is not None
    ):
        return False
    # Reserved are, among others, IPv4 addresses in ::/96, a form that no one uses any more.
    return address.is_global and not (
        address.is_multicast
        or address.is_private
        or address.is_reserved
        or address.is_loopback
        or address.is_link_local
        or address.is_unspecified
    )


# --- exceptions ---


@dataclass(frozen=True, slots=True)
class Allowed:
    """Hosts that hooks may reach although they are not public: ``SCHED_HOOKS_ALLOW``.

    Attributes:
        hosts: names, each with a port or None for every port.
        networks: the same of addresses.
    """

    hosts: tuple[tuple[str, int | None], ...] = ()
    networks: tuple[tuple[Network, int | None], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Allowed:
        """Return the exceptions of a text: names, addresses and networks, with commas between.

        Each may end in a port: ``hooks.internal:8443``, ``10.1.0.0/16``, ``[::1]:9000``.

        Raises:
            ValueError: one of them is none of these.
        """
        hosts, networks = [], []
        for item in filter(None, (each.strip() for each in text.split(","))):
            host, port = _divided(item)
            try:
                networks.append((ipaddress.ip_network(host), port))
            except ValueError:
                if not _HOST.fullmatch(host.lower()):
                    hint = "write hooks.internal:8443,10.1.0.0/16"
                    raise ValueError(f"{item} is no host, address or network; {hint}") from None
                hosts.append((host.lower(), port))
        return cls(tuple(hosts), tuple(networks))

    def has_host(self, host: str, port: int) -> bool:
        """Return whether every address of this name may be reached."""
        return any(host == each and allowed in {None, port} for each, allowed in self.hosts)

    def has_address(self, address: Address, port: int) -> bool:
        """Return whether the address, and all that it stands for, may be reached."""
        return all(
            any(
                each.version == network.version and each in network and allowed in {None, port}
                for network, allowed in self.networks
            )
            or is_public(each)
            for each in unpacked(address)
        )


def _divided(item: str) -> tuple[str, int | None]:
    """Divide an exception into its host, or network, and its port."""
    if item.startswith("["):
        host, _, port = item[1:].partition("]")
        port = port.removeprefix(":")
    elif item.count(":") == 1:
        host, _, port = item.partition(":")
    else:
        return item, None
    if not port:
        return host, None
    if not port.isdecimal() or not 0 < int(port) < 65536:  # noqa: PLR2004 - the largest port
        raise ValueError(f"{item} has no valid port")
    return host, int(port)


# --- destinations ---


@dataclass(frozen=True, slots=True)
class Destination:
    """A URL whose host has been resolved and checked.

    Attributes:
        url: the same with the checked address in place of the host.
        host: the ``Host`` header.
        name: the host as written, for TLS.
    """

    url: str
    host: str
    name: str


async def resolved(threads: Executor | None, host: str, port: int) -> list[str]:
    """Return the addresses of a name, by the resolver of the machine, in one of these threads."""
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]  # no thread has to ask for it
    ask = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(threads, ask)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


_resolve: Final[Resolve] = partial(resolved, None)


async def checked(url: str, allowed: Allowed, *, resolve: Resolve = _resolve) -> Destination:
    """Resolve the host of a URL, check every address, and return where to connect.

    Raises:
        AddressRefused: the host has no address, or one that is neither public nor allowed.
    """
    parts = urlsplit(url)
    host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS[parts.scheme]
    if not host:
        raise AddressRefused("it names no host")
    try:
        found = [ipaddress.ip_address(each) for each in await resolve(host, port)]
    except (OSError, UnicodeError, ValueError):
        raise AddressRefused(f"{host} has no address") from None
    if not found:
        raise AddressRefused(f"{host} has no address")
    if not allowed.has_host(host, port):
        refused = [each for each in found if not allowed.has_address(each, port)]
        if refused:
            text = f"{host} is {refused[0]}, which is not public; {ALLOW_HINT}"
            raise AddressRefused(text)
    address = str(found[0])
    target = f"[{address}]" if ":" in address else address
    path = parts.path or "/"
    query = f"?{parts.query}" if parts.query else ""
    named = f"[{host}]" if ":" in host else host
    shown = named if parts.port is None else f"{named}:{parts.port}"
    return Destination(f"{parts.scheme}://{target}:{port}{path}{query}", shown, host)
