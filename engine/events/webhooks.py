"""Webhooks: an event as a signed CloudEvent, sent to an address that has been checked."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import ssl
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, Final

import httpx
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks import Webhook

from engine.events.addresses import AddressRefused, Allowed, Resolve, checked, resolved
from engine.events.messages import MOST_AT_ONCE, PATIENCE, ScheduleEvent
from engine.ledger import Subscription
from engine.schedules import place_of_url

_CONNECTING: Final = 5.0
_MOST_READ: Final = 16 * 1024
"""Bytes of an answer that are read; only its status counts."""
_MOST_SENT: Final = 1024 * 1024
_CONTENT: Final = "application/cloudevents+json; charset=utf-8"
_CONNECTIONS: Final = httpx.Limits(
    max_connections=MOST_AT_ONCE, max_keepalive_connections=4, keepalive_expiry=15
)
_OK: Final = range(200, 300)
_KEY_BYTES: Final = range(24, 65)


def encoded(event: ScheduleEvent) -> str:
    """Return an event as a CloudEvent 1.0 in JSON, the structured mode."""
    attributes: dict[str, Any] = {
        "id": event.id,
        "source": event.source,
        "type": event.name,
        "subject": event.data.get("workflowId") or event.key,
        "time": event.time.astimezone(UTC),
        "datacontenttype": "application/json",
        "sequence": str(event.sequence),  # the extension of this name takes texts
    }
    return JSONFormat().write(CloudEvent(attributes, dict(event.data))).decode()


def message_id(event: ScheduleEvent) -> str:
    """Return the ``webhook-id`` of an event: as stable as its ID, and without the dots of keys.

    What is signed is ID, time and body with dots between them.
    """
    return f"evt_{hashlib.sha256(f'{event.source} {event.id}'.encode()).hexdigest()[:40]}"


class HookSender:
    """Sender of the events of one hook, which keeps its connections.

    Each hook has connections of its own: those to one address are shared, whatever name the
    certificate was checked for. It has threads of its own too: a name that does not resolve takes
    one for as long as the resolver tries.

    Args:
        hook: its subscription.
        allowed: addresses that are not public and may be reached.
        environment: where the secret is.
        resolve: returns the addresses of a name; by default the resolver of the machine does.
        verify: the certificates that are trusted; by default those of the machine.
    """

    def __init__(
        self,
        hook: Subscription,
        allowed: Allowed,
        *,
        environment: Mapping[str, str] = os.environ,
        resolve: Resolve | None = None,
        verify: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._url, self._secret = hook.url or "", hook.secret or ""
        self._allowed, self._environment = allowed, environment
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE)
        self._resolve = resolve or partial(resolved, self._threads)
        self._http = httpx.AsyncClient(
            verify=(verify or trusted)(),
            # Neither a proxy nor a .netrc of the machine: they would be other destinations.
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(PATIENCE, connect=_CONNECTING),
            limits=_CONNECTIONS,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def __call__(self, event: ScheduleEvent) -> str | None:
        """Send an event; return why it was not taken, or None.

        The reason has neither the path of the address nor the secret.
        """
        place = place_of_url(self._url)
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._send(event)
        except AddressRefused as error:
            return f"{place} is not called: {error}"
        except TimeoutError:
            return f"{place} does not answer within {PATIENCE:.0f} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return f"{place} cannot be reached ({type(error).__name__})"

    async def _send(self, event: ScheduleEvent) -> str | None:
        body = encoded(event)
        place = place_of_url(self._url)
        if len(body) > _MOST_SENT:
            return f"the event is larger than {_MOST_SENT // 1024} KB"
        signed = self._signed(body, message_id(event))
        if signed is None:
            hint = f"set {self._secret} to whsec_… and 24 to 64 bytes in base64"
            return f"the signature cannot be made: {hint}"
        to = await checked(self._url, self._allowed, resolve=self._resolve)
        async with self._http.stream(
            "POST",
            to.url,
            content=body.encode(),
            headers={"Host": to.host, "Content-Type": _CONTENT, **signed},
            extensions={"sni_hostname": to.name},
        ) as answer:
            read = 0
            async for chunk in answer.aiter_raw():  # so that the connection can be used again
                read += len(chunk)
                if read > _MOST_READ:
                    break
        return None if answer.status_code in _OK else f"{place} answers {answer.status_code}"

    def _signed(self, body: str, message: str) -> dict[str, str] | None:
        """Return the headers of the signature; None if the secret is missing or no secret."""
        now = datetime.now(UTC)
        try:
            signature = _webhook(self._environment[self._secret]).sign(message, now, body)
        except Exception:  # noqa: BLE001 - its text may have the secret in it
            return None
        return {
            "webhook-id": message,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": signature,
        }


@cache
def _webhook(secret: str) -> Webhook:
    """Return the signer of a secret; the library itself takes any text for base64."""
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    if len(key) not in _KEY_BYTES:
        raise ValueError
    return Webhook(key)


@cache
def trusted() -> ssl.SSLContext:
    """Return the trusted certificates; reading them takes some 20 ms."""
    return httpx.create_ssl_context()  # SSL_CERT_FILE, where a network has an authority of its own
