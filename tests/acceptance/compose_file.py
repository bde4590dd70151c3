"""Reads docker-compose.yml the way ``docker compose`` does, as far as that file needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Self

import yaml

from engine.schedules.terms import parse_duration
from tests.acceptance.fleet import ROOT

PATH = ROOT / "docker-compose.yml"
HEALTHY = "service_healthy"
COMPLETED = "service_completed_successfully"
_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+):-([^}]*)\}|)")


@dataclass(frozen=True)
class Service:
    """One service, every ``${NAME:-default}`` in it resolved."""

    name: str
    spec: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        return dict(self.spec.get("environment", {}))

    @property
    def command(self) -> list[str]:
        command: list[str] = self.spec.get("command", [])
        return command

    @property
    def health(self) -> list[str]:
        """The command of the health check, without the word that says how it is run."""
        kind, *command = self.spec["healthcheck"]["test"]
        return command if kind == "CMD" else ["sh", "-c", *command]

    @property
    def needs(self) -> dict[str, str]:
        """Which services it waits for, and for what."""
        return {name: how["condition"] for name, how in self.spec.get("depends_on", {}).items()}

    @property
    def patience(self) -> timedelta:
        """How long a container has to stop; Docker kills it then."""
        return parse_duration(self.spec.get("stop_grace_period", "10s"))

    @property
    def mounts(self) -> dict[str, str]:
        """Target: source."""
        pairs = (volume.split(":") for volume in self.spec.get("volumes", []))
        return {target: source for source, target, *_ in pairs}


@dataclass(frozen=True)
class ComposeFile:
    """The whole file."""

    services: Mapping[str, Service]
    volumes: frozenset[str]

    @classmethod
    def read(cls, path: Path = PATH, **environment: str) -> Self:
        """Read it with these variables set, as ``.env`` would."""
        document = _resolved(yaml.safe_load(path.read_text()), environment)
        services = {name: Service(name, spec) for name, spec in document["services"].items()}
        return cls(services, frozenset(document["volumes"]))

    def __getitem__(self, name: str) -> Service:
        return self.services[name]

    def __iter__(self) -> Iterator[Service]:
        return iter(self.services.values())

    def order(self) -> list[str]:
        """The services, each after all it waits for.

        Raises:
            graphlib.CycleError: some wait in a circle.
        """
        return [*TopologicalSorter({each.name: each.needs for each in self}).static_order()]

    def awaited(self, condition: str) -> set[str]:
        """Who is waited for in this way by anybody."""
        pairs = (pair for each in self for pair in each.needs.items())
        return {name for name, how in pairs if how == condition}


def _resolved(value: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _resolved(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, environment) for item in value]
    if not isinstance(value, str):
        return value

    def replaced(match: re.Match[str]) -> str:
        dollar, name, default = match.groups()
        if dollar:
            return "$"
        assert name, f"neither $$ nor ${{NAME:-default}} in {value!r}"
        return environment.get(name) or str(default)

    return _VARIABLE.sub(replaced, value)
