"""Messages of events: what listeners, hooks and readers get of a transition."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from engine.json_view import JsonView
from engine.ledger import EventRow
from engine.schedules import EventType, Schedule, Sealed, exact_text

PATIENCE: Final = 10.0
"""Seconds that a receiver of an event may take, a function or a webhook."""

AT_ONCE: Final = 8
"""Schedules whose events one subscriber gets at once, while they are accepted."""
FAILING_AT_ONCE: Final = 4
"""The same of schedules whose last event was not accepted; they take no place of others."""
MOST_AT_ONCE: Final = AT_ONCE + FAILING_AT_ONCE

MOST_PAYLOAD: Final = 256 * 1024
"""Bytes of JSON of an input that a message carries."""

# Those of `engine.flow`, which loads Temporal's SDK; a test compares them.
_IDENTITIES: Final = ("ownerId", "tenantId", "correlationId", "clientRequestId")


@dataclass(frozen=True, slots=True)
class ScheduleEvent:
    """An event under one of its names.

    Attributes:
        id: the same in every delivery, and for every reader: what was handled under it before is
            left out by a reader that must not do it twice.
        name: ``schedule.arrived``, or ``schedule.<topic>.arrived``.
        type: the last part of the name.
        source: the schedule, as a URI reference. ``id`` is unique in it.
        time: when the transition was written, by the ledger's clock.
        sequence: its number among the events of its schedule; all names of one share it.
        data: the details, JSON; docs/events.md has the fields.
    """

    id: str
    name: str
    type: EventType
    namespace: str
    project: str
    key: str
    source: str
    time: datetime
    sequence: int
    topic: str | None
    data: Mapping[str, Any]

    @classmethod
    def of(cls, event: EventRow, name: str, namespace: str) -> ScheduleEvent:
        """Return the message of an event under one of its names."""
        plain = f"schedule.{event.type}"
        kind = event.type if name == plain else _type_of(name)
        return cls(
            id=event.event_id if name == plain else f"{event.event_id}:{name}",
            name=name,
            type=kind,
            namespace=namespace,
            project=event.project,
            key=event.key,
            source=f"/namespaces/{quote(namespace, safe='')}/schedules/{quote(event.key)}",
            time=event.at,
            sequence=event.sequence or 0,
            topic=event.schedule.topic if event.schedule else None,
            data=_data(event),
        )


def _type_of(name: str) -> EventType:
    return name.rpartition(".")[2]  # type: ignore[return-value] # of a name that an event has


_FIRE: Final = JsonView(
    EventRow,
    "project definition_version workflow_id run_id kind series bucket windows last_fire_time missed"
    " timing reason reason_code error closed_at",
    title="EventFire: What an event has of its fire; the page on events has the rest of its data.",
)
"""What an event has of its fire, by the names of the view of that."""


def _data(event: EventRow) -> dict[str, Any]:
    schedule = event.schedule
    metadata = schedule.metadata if schedule else {}
    return {
        "scheduledJobId": event.key,
        "topic": schedule.topic if schedule else None,
        **_payload(event),
        "metadata": {name: _text(metadata.get(name)) for name in _IDENTITIES},
        "timezone": schedule.timezone if schedule else None,
        "originalScheduledAt": _instant(event.fire_time),
        # The ledger knows when Temporal started the run, not when a worker entered it.
        "firedAt": _instant(event.started_at),
        "attempt": 1,
        "maxAttempts": _most_tries(schedule),
        **{name: _instant(value) for name, value in _FIRE(event).items()},
    }


def _payload(event: EventRow) -> dict[str, Any]:
    """Return the input of the run. A sealed one stays in the ledger, and a large one too."""
    own, declared = event.own_input, event.schedule.input if event.schedule else None
    if event.sealed or (own is None and isinstance(declared, Sealed)):
        return {"userPayload": None, "payloadOmitted": "sealed"}
    text = json.dumps(declared) if own is None else own
    if len(text) > MOST_PAYLOAD:
        return {"userPayload": None, "payloadOmitted": "large"}
    return {"userPayload": json.loads(text), "payloadOmitted": None}


def _most_tries(schedule: Schedule | None) -> int:
    """Return how often a run is tried: once, unless its schedule declares a retry."""
    return schedule.retry.tries if schedule and schedule.retry else 1


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _instant(value: Any) -> Any:
    return exact_text(value) if isinstance(value, datetime) else value
