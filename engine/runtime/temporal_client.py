"""Temporal client of the environment, and classification of its errors."""

from __future__ import annotations

import logging
import os
import re
from datetime import timedelta
from typing import Any, Final, Literal

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode

from engine.errors import LedgerTimeout, LedgerUnavailable, SettingsInvalid, TemporalUnavailable
from engine.ledger import TemporalNamespace
from engine.runtime.events import Degraded, ServerName, words_of

# --- connection ---
# Connection to the Temporal server that the environment names.

_PATIENCE: Final = timedelta(seconds=5)
_ADDRESS: Final = re.compile(r"(https?://)?\S+:[0-9]{1,5}/?")


def temporal_target() -> dict[str, Any]:
    """Return the connect arguments from Temporal's own variables and profile."""
    config = ClientConfig.load_client_connect_config(profile=os.environ.get("TEMPORAL_PROFILE"))
    return {"target_host": "localhost:7233", "namespace": "default", **config}


async def connect_temporal(**instead: Any) -> Client:
    """Connect to Temporal.

    Args:
        **instead: connect arguments that override those of the environment.

    Raises:
        TemporalUnavailable: no server answers, or the namespace does not exist (yet).
        SettingsInvalid: the address is none, so that no server will ever answer.
    """
    target = {**temporal_target(), **instead}
    # The SDK takes a scheme too, and warns of it in Python's own words.
    target["target_host"] = target["target_host"].removeprefix("http://")
    place, namespace = target["target_host"], target["namespace"]
    if not _ADDRESS.fullmatch(place):
        raise SettingsInvalid([f"TEMPORAL_ADDRESS is {place!r}; write host:port"])
    try:
        client = await Client.connect(**target)
    except (RuntimeError, OSError) as error:
        raise TemporalUnavailable(
            f"no Temporal server answers at {place}",
            hint="start it, or set TEMPORAL_ADDRESS",
        ) from error
    try:
        wanted = DescribeNamespaceRequest(namespace=namespace)
        await client.workflow_service.describe_namespace(wanted, timeout=_PATIENCE)
    except RPCError as error:
        # Otherwise a worker of a missing namespace would end with the SDK's own message.
        if error.status == RPCStatusCode.NOT_FOUND:
            raise TemporalUnavailable(
                f"the Temporal server at {place} has no namespace {namespace!r}",
                hint=f"`temporal operator namespace create --namespace {namespace}` makes one, "
                "TEMPORAL_NAMESPACE names another",
            ) from error
        # A client without the permission to describe a namespace may still work in it.
        if error.status != RPCStatusCode.PERMISSION_DENIED:
            raise TemporalUnavailable(f"the Temporal server at {place}: {error.message}") from error
    return client


async def describe_namespace(client: Client, patience: timedelta) -> TemporalNamespace:
    """Describe the client's namespace.

    Raises:
        RPCError: the server does not answer, or refuses to say.
        RuntimeError: the SDK cannot connect.
    """
    request = DescribeNamespaceRequest(namespace=client.namespace)
    found = await client.workflow_service.describe_namespace(request, timeout=patience)
    ttl = found.config.workflow_execution_retention_ttl
    cluster = found.replication_config.active_cluster_name
    return TemporalNamespace(
        found.namespace_info.id,
        f"cluster {cluster} at {client.service_client.config.target_host}",
        timedelta(seconds=ttl.seconds, microseconds=ttl.nanos // 1000),
    )


# --- search attributes ---
# Those of a namespace with their kinds, and the one of the engine.


async def read_search_attributes(client: Client, patience: timedelta) -> dict[str, str] | None:
    """Return the custom search attributes of the namespace, each with its kind, as ``Keyword``.

    None if the server does not say: it is away, or does not let this client ask.
    """
    request = ListSearchAttributesRequest(namespace=client.namespace)
    try:
        answer = await client.operator_service.list_search_attributes(request, timeout=patience)
    except (RPCError, RuntimeError):  # RuntimeError while the SDK cannot connect
        return None
    return {name: _kind(number) for name, number in answer.custom_attributes.items()}


def _kind(number: IndexedValueType.ValueType) -> str:
    words = IndexedValueType.Name(number).removeprefix("INDEXED_VALUE_TYPE_").split("_")
    return "".join(word.title() for word in words)


async def register_keyword(client: Client, name: str) -> str | None:
    """Register a search attribute that is missing; return why that failed, if it did.

    It fails where an attribute of that name has another kind, or a team may not register any.
    """
    found = await read_search_attributes(client, _PATIENCE)
    if found is None or name in found:
        kind = (found or {}).get(name, "Keyword")
        return None if kind == "Keyword" else f"{name} is of kind {kind}, not Keyword"
    request = AddSearchAttributesRequest(
        namespace=client.namespace,
        search_attributes={name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD},
    )
    try:
        await client.operator_service.add_search_attributes(request, timeout=_PATIENCE)
    except (RPCError, RuntimeError) as error:
        taken = isinstance(error, RPCError) and error.status == RPCStatusCode.ALREADY_EXISTS
        return None if taken else f"{name} could not be registered: {words_of(error)}"
    return None


# --- errors of the server ---
# Distinction of errors that concern the Temporal server from those that concern a single call.

RpcFailure = Literal["unavailable", "throttled"]
"""``unavailable``: there was no answer. ``throttled``: the server answered "too many calls"."""

_NOBODY_ANSWERED = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,  # the SDK's status for its own timeout
        RPCStatusCode.UNKNOWN,  # a connection that broke in the middle of a call
    }
)


def classify_rpc_error(error: BaseException) -> RpcFailure | None:
    """Return the failure of the server, or None for an answer to this one call."""
    if isinstance(error, RPCError):
        if error.status in _NOBODY_ANSWERED:
            return "unavailable"
        busy = error.status == RPCStatusCode.RESOURCE_EXHAUSTED and not too_large(error)
        return "throttled" if busy else None
    # The SDK's only sign that no connection could be opened.
    unconnected = isinstance(error, RuntimeError) and "client connect" in str(error)
    return "unavailable" if unconnected else None


def server_of(error: BaseException) -> ServerName | None:
    """Return the server that does not answer, if that is what the error means."""
    if isinstance(error, LedgerUnavailable):
        # It has answered: it ended what took too long.
        return None if isinstance(error, LedgerTimeout) else "ledger"
    away = isinstance(error, TemporalUnavailable) or classify_rpc_error(error) == "unavailable"
    return "temporal" if away else None


def degraded_by(loop: str, error: BaseException) -> Degraded:
    """Return the event of a loop that an error stops."""
    detail = error.detail if isinstance(error, LedgerUnavailable) else None
    return Degraded(loop, words_of(error), server_of(error), detail)


def level_of(error: BaseException) -> int:
    """Return the severity of work that an error puts off: that a server is away is known."""
    return logging.DEBUG if server_of(error) else logging.WARNING


def too_large(error: RPCError) -> bool:
    """Return whether the call was too large; too many calls have the same status."""
    exhausted = error.status == RPCStatusCode.RESOURCE_EXHAUSTED
    return exhausted and "larger than max" in error.message
