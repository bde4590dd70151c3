"""Webhooks: signed CloudEvents over checked addresses, and to nowhere else."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks import Webhook

from engine.events import ScheduleEvent, webhooks
from engine.events.addresses import AddressRefused, Allowed, checked, is_public
from engine.events.messages import MOST_AT_ONCE
from engine.events.webhooks import HookSender
from engine.ledger import EventRow, Subscription
from engine.schedules import Hook, load_schedules
from tests.links import accepting
from tests.receiver import Request
from tests.waiting import eventually

SECRET = "whsec_" + base64.b64encode(b"a secret of enough bytes, 32 of it").decode()
(SCHEDULE,) = load_schedules(
    "schedules: [{key: a.b, workflow: w, everyMs: 1000, topic: bills.due, input: {n: 1}}]"
).schedules
EVENT = ScheduleEvent.of(
    EventRow(
        event_id="sched:a.b:7:arrived:run", project="default", key="a.b", type="arrived",
        at=datetime(2026, 5, 1, 12, tzinfo=UTC), definition_version=1, sequence=3,
        schedule=SCHEDULE, workflow_id="sched:a.b:7", run_id="run", kind="window", bucket=7,
        fire_time=datetime(2026, 5, 1, 12, tzinfo=UTC),
        started_at=datetime(2026, 5, 1, 12, 0, 1, tzinfo=UTC),
    ),
    "schedule.arrived",
    "test",
)  # fmt: skip


# --- addresses ---

NOT_PUBLIC = {
    "loopback": "127.0.0.1",
    "loopback, another": "127.255.255.254",
    "this host": "0.0.0.0",  # noqa: S104 - refused
    "private, 10": "10.1.2.3",
    "private, 172": "172.31.255.255",
    "private, 192": "192.168.0.1",
    "link-local, metadata of clouds": "169.254.169.254",
    "shared by carriers": "100.64.0.1",
    "documentation": "192.0.2.1",
    "benchmarks": "198.18.0.1",
    "multicast": "224.0.0.1",
    "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255",
    "IPv6 loopback": "::1",
    "IPv6 unspecified": "::",
    "IPv6 link-local": "fe80::1",
    "IPv6 link-local with a scope": "fe80::1%eth0",
    "IPv6 unique local": "fd00::1",
    "IPv6 site-local": "fec0::1",
    "IPv6 multicast": "ff02::1",
    "IPv6 documentation": "2001:db8::1",
    "Teredo": "2001::1",
    "mapped loopback": "::ffff:127.0.0.1",
    "mapped private": "::ffff:10.0.0.1",
    "compatible loopback": "::127.0.0.1",
    "NAT64 of loopback": "64:ff9b::7f00:1",
    "NAT64 of metadata": "64:ff9b::a9fe:a9fe",
    "NAT64 of a network": "64:ff9b:1::808:808",
    "6to4 of loopback": "2002:7f00:1::",
    "6to4 of private": "2002:a00:1::1",
    "6to4 of a public one": "2002:808:808::1",
    "6to4 relays": "192.88.99.1",
    "ISATAP of loopback": "2606:4700::5efe:7f00:1",
    "ISATAP of private": "2606:4700::200:5efe:a00:1",
    "metadata of Oracle": "192.0.0.192",
    "metadata of Azure": "168.63.129.16",
    "NAT64 of that": "64:ff9b::a83f:8110",
    "IPv6 documentation, the newer": "3fff::1",
}
PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


def resolving(
    *addresses: str, asked: list[str] | None = None
) -> Callable[[str, int], Awaitable[list[str]]]:
    async def resolve(host: str, _: int) -> list[str]:
        if asked is not None:
            asked.append(host)
        return list(addresses)

    return resolve


@pytest.mark.parametrize("address", NOT_PUBLIC.values(), ids=NOT_PUBLIC)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_name_of_an_address_that_is_not_public_is_refused(scheme: str, address: str):
    url = f"{scheme}://hooks.example/secret-path"
    with pytest.raises(AddressRefused, match="not public; name it in SCHED_HOOKS_ALLOW") as error:
        await checked(url, Allowed(), resolve=resolving(address))
    assert "secret-path" not in str(error.value)
    with pytest.raises(AddressRefused):  # one of several is enough
        await checked(url, Allowed(), resolve=resolving("8.8.8.8", address))
    if "%" not in address:
        literal = f"[{address}]" if ":" in address else address
        with pytest.raises(AddressRefused):
            await checked(f"{scheme}://{literal}/", Allowed())


@pytest.mark.parametrize(
    "host", ["localhost", "2130706433", "0x7f.0.0.1", "127.1", "0177.0.0.1", "localhost."]
)
async def test_a_loopback_in_disguise_is_refused(host: str):
    """By the resolver of the machine."""
    with pytest.raises(AddressRefused):
        await checked(f"http://{host}/", Allowed())


@pytest.mark.parametrize("address", PUBLIC)
async def test_a_public_address_is_connected_to_by_itself(address: str):
    assert is_public(ip_address(address))
    to = await checked("https://hooks.example:8443/a?b=1", Allowed(), resolve=resolving(address))
    literal = f"[{ip_address(address)}]" if ":" in address else address
    assert to.url == f"https://{literal}:8443/a?b=1"
    assert (to.host, to.name) == ("hooks.example:8443", "hooks.example")


async def test_a_name_whose_resolver_hangs_takes_no_thread_of_another_hook(
    monkeypatch: pytest.MonkeyPatch,
):
    """As many ask for it as a hook sends at once, and more than the loop has threads."""
    release, hanging, ask = threading.Event(), [], socket.getaddrinfo

    def hangs(host: str, *args: Any, **options: Any) -> Any:
        if host == "hangs.example":
            hanging.append(host)
            release.wait()
        return ask("localhost", *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hangs)
    options = {"allowed": Allowed(), "resolve": None}
    slow, other = (sender(f"https://{name}.example", **options) for name in ("hangs", "b"))
    sending = [asyncio.create_task(slow(EVENT)) for _ in range(MOST_AT_ONCE)]
    await eventually(lambda: len(hanging) == MOST_AT_ONCE)
    assert "is not called: b.example is" in str(await other(EVENT))
    release.set()
    await asyncio.gather(*sending)
    await slow.close()
    await other.close()


async def test_a_name_without_an_address_is_refused():
    with pytest.raises(AddressRefused, match=r"nowhere\.invalid has no address"):
        await checked("https://nowhere.invalid", Allowed())


@pytest.mark.parametrize(
    ("allowed", "url", "passes"),
    [
        ("hooks.internal", "http://hooks.internal:81/", True),
        ("hooks.internal:81", "http://hooks.internal:81/", True),
        ("hooks.internal:82", "http://hooks.internal:81/", False),
        ("internal", "http://hooks.internal:81/", False),
        ("10.0.0.0/8", "http://hooks.internal:81/", True),
        ("10.9.9.9", "http://hooks.internal:81/", True),
        ("10.9.9.8", "http://hooks.internal:81/", False),
        ("192.168.0.0/16, [::1]:9, 10.0.0.0/8:81", "http://hooks.internal:81/", True),
    ],
)
async def test_exceptions_name_hosts_networks_and_ports(allowed: str, url: str, *, passes: bool):
    by = Allowed.parse(allowed)
    if passes:
        await checked(url, by, resolve=resolving("10.9.9.9"))
        await checked(url, by, resolve=resolving("::ffff:10.9.9.9"))
    else:
        with pytest.raises(AddressRefused):
            await checked(url, by, resolve=resolving("10.9.9.9"))


def test_an_exception_for_6to4_opens_nothing_private_behind_it():
    by = Allowed.parse("2002::/16")
    assert by.has_address(ip_address("2002:808:808::1"), 443)
    assert not by.has_address(ip_address("2002:7f00:1::"), 443)


@pytest.mark.parametrize("text", ["10.0.0.0/40", "a b", "hooks:0", "hooks:70000", "http://x/"])
def test_an_exception_that_is_none_is_refused(text: str):
    with pytest.raises(ValueError, match=r"is no host|has no valid port"):
        Allowed.parse(text)


# --- deliveries ---


class Server:
    """An HTTP server on loopback that notes requests and answers as it is told to."""

    def __init__(self, answer: bytes = b"HTTP/1.1 204 No Content\r\n\r\n") -> None:
        self.answer = answer
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.names: list[str | None] = []
        self.port = 0

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        if tls is not None:
            tls.sni_callback = lambda _, name, __: self.names.append(name)
        async with accepting(self._answer, tls=tls) as self.port:
            yield f"{'https' if tls else 'http'}://hooks.test:{self.port}/secret-path"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await Request.read(reader)
        self.requests.append((request.line, request.headers, request.body))
        writer.write(self.answer)
        await writer.drain()
        if not self.answer:
            await reader.read()  # until the other side has enough of waiting


def sender(url: str, *addresses: str, **options) -> HookSender:
    hook = Subscription.of_hook(Hook(url, "HOOK_SECRET"), "default", "file")
    options = {
        "environment": {"HOOK_SECRET": SECRET},
        "resolve": resolving(*(addresses or ("127.0.0.1",))),
        **options,
    }
    return HookSender(hook, options.pop("allowed", Allowed.parse("hooks.test")), **options)


async def sent(url: str, *addresses: str, **options) -> str | None:
    send = sender(url, *addresses, **options)
    try:
        return await send(EVENT)
    finally:
        await send.close()


async def test_a_hook_gets_a_signed_cloudevent():
    server = Server()
    async with server.listening() as url:
        assert await sent(url) is None
        assert await sent(url) is None
    (first, headers, body), (_, again, _) = server.requests
    assert first == "POST /secret-path HTTP/1.1"
    assert headers["host"] == f"hooks.test:{server.port}"
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert headers["webhook-id"] == again["webhook-id"], "as stable as the event"
    assert Webhook(SECRET).verify(body, headers)
    event = JSONFormat().read(CloudEvent, body)
    assert (event.get_id(), event.get_type()) == (EVENT.id, "schedule.arrived")
    assert event.get_source() == "/namespaces/test/schedules/a.b"
    assert event.get_subject() == "sched:a.b:7"
    assert json.loads(body)["sequence"] == "3"
    assert json.loads(body)["data"]["userPayload"] == {"n": 1}


async def test_an_address_that_is_not_allowed_is_not_even_connected_to():
    server = Server()
    async with server.listening() as url:
        error = await sent(url, allowed=Allowed())
    assert error
    assert "hooks.test is 127.0.0.1, which is not public" in error
    assert "secret-path" not in error
    assert server.requests == []


async def test_a_name_is_resolved_once_for_a_delivery():
    """What it means a moment later does not matter: the connection goes to what was checked."""
    server = Server()
    asked: list[str] = []
    resolve = resolving("127.0.0.1", asked=asked)
    async with server.listening() as url:
        assert await sent(url, resolve=resolve) is None
    assert asked == ["hooks.test"]


async def test_a_redirect_is_an_answer_like_another():
    away = b"location: http://127.0.0.1/\r\ncontent-length: 0\r\n\r\n"
    server = Server(b"HTTP/1.1 307 Temporary Redirect\r\n" + away)
    async with server.listening() as url:
        error = await sent(url)
    assert error == f"http://hooks.test:{server.port}/… answers 307"
    assert len(server.requests) == 1


async def test_an_endless_answer_is_left_alone():
    body = b"x" * 1_000_000
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body) * 1000}\r\n\r\n".encode()
    server = Server(head + body)
    async with server.listening() as url:
        assert await sent(url) is None


async def test_a_hook_that_does_not_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(webhooks, "PATIENCE", 0.05)
    server = Server(b"")
    async with server.listening() as url:
        error = await sent(url)
    assert error
    assert "does not answer within" in error


async def test_a_proxy_of_the_machine_is_not_used(monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server = Server()
    async with server.listening() as url:
        assert await sent(url) is None


@pytest.mark.parametrize("given", [{}, {"HOOK_SECRET": ""}, {"HOOK_SECRET": "whsec_hunter2!"}])
async def test_without_its_secret_nothing_is_sent(given: dict[str, str]):
    server = Server()
    async with server.listening() as url:
        error = await sent(url, environment=given)
    assert error
    assert "set HOOK_SECRET to whsec_" in error
    assert "hunter2" not in error
    assert server.requests == []


async def test_a_server_that_is_gone_is_named_without_its_path():
    error = await sent("http://hooks.test:9/secret-path")
    assert error == "http://hooks.test:9/… cannot be reached (ConnectError)"


# --- TLS ---


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The key and certificate of hooks.test."""
    folder = tmp_path_factory.mktemp("tls")
    key, pem = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-keyout", key, "-out", pem, "-subj", "/CN=hooks.test",
         "-addext", "subjectAltName=DNS:hooks.test"],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, pem


@pytest.fixture
def server_tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key, pem = certificate
    tls.load_cert_chain(pem, key)
    return tls


async def test_over_tls_the_certificate_is_of_the_name_and_the_connection_of_the_address(
    certificate: tuple[Path, Path], server_tls: ssl.SSLContext
):
    def trusted() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(certificate[1]))

    server = Server()
    async with server.listening(server_tls) as url:
        assert await sent(url, verify=trusted) is None
        assert server.names == ["hooks.test"]
        (_, headers, body) = server.requests.pop()
        assert headers["host"] == f"hooks.test:{server.port}"
        assert Webhook(SECRET).verify(body, headers)

        allowed = Allowed.parse("hooks.test,other.test")
        other = url.replace("hooks.test", "other.test")
        error = await sent(other, verify=trusted, allowed=allowed)
        assert error == f"https://other.test:{server.port}/… cannot be reached (ConnectError)"
        assert await sent(url), "an authority that nobody trusts"
        assert await sent(url, verify=trusted, allowed=Allowed())
        assert server.requests == []
