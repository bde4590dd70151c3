"""OpenTelemetry's own variables, read alike for metrics and for traces.

The SDK's default is OTLP to this machine. Here nothing is sent unless a variable says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points, version
from typing import Any, Final, Literal, TypeAlias

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource

from engine.errors import SettingsInvalid

Signal: TypeAlias = Literal["metrics", "traces"]

_OTLP: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}


def is_disabled(environment: Mapping[str, str]) -> bool:
    """Return whether ``OTEL_SDK_DISABLED`` turns everything off."""
    return environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def exporter_names(signal: Signal, environment: Mapping[str, str]) -> list[str]:
    """Return the names of the exporters of a signal, as they are registered; none if it is off.

    Without a variable that names them, an OTLP endpoint turns the signal on.

    Raises:
        SettingsInvalid: the protocol of OTLP is unknown.
    """
    if is_disabled(environment):
        return []
    given = environment.get(f"OTEL_{signal.upper()}_EXPORTER")
    if not given:
        given = "otlp" if any(map(environment.get, _of_otlp(signal, "ENDPOINT"))) else "none"
    names = dict.fromkeys(filter(None, (each.strip() for each in given.split(","))))
    return [_registered(each, signal, environment) for each in names if each != "none"]


def _of_otlp(signal: Signal, name: str) -> tuple[str, str]:
    """Return the variable of the signal, and that of all signals."""
    return f"OTEL_EXPORTER_OTLP_{signal.upper()}_{name}", f"OTEL_EXPORTER_OTLP_{name}"


def _registered(name: str, signal: Signal, environment: Mapping[str, str]) -> str:
    if name != "otlp":
        return name
    protocols = map(environment.get, _of_otlp(signal, "PROTOCOL"))
    protocol = next(filter(None, protocols), "http/protobuf")
    found = _OTLP.get(protocol)
    if found is None:
        raise SettingsInvalid(
            [f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; write {' or '.join(_OTLP)}"]
        )
    return found


def exporter_of(signal: Signal, name: str) -> Any:
    """Return a new exporter of this name, which reads its own variables.

    Raises:
        SettingsInvalid: it is unknown, or its package is not installed.
    """
    found = next(iter(entry_points(group=f"opentelemetry_{signal}_exporter", name=name)), None)
    if found is None:
        asked = "otlp" if name in _OTLP.values() else name
        hint = "pip install 'sched-engine[otlp]'" if asked == "otlp" else "install its package"
        raise SettingsInvalid([f"no {signal} exporter {asked!r} is installed here; {hint}"])
    return found.load()()


def resource_of(environment: Mapping[str, str]) -> Resource:
    """Return the resource of the SDK's variables; without a service name it is ``sched``."""
    ours = {SERVICE_VERSION: version("sched-engine")}
    named = "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not environment.get("OTEL_SERVICE_NAME") and not named:
        ours[SERVICE_NAME] = "sched"
    return Resource.create(ours)
