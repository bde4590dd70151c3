"""Remaining undo steps of an ended run, read from its history."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import ActivityTaskScheduledEventAttributes, HistoryEvent
from temporalio.common import RawValue
from temporalio.converter import DataConverter, PayloadConverter
from temporalio.service import RPCError, RPCStatusCode

from engine.flow import FatalError
from engine.flow.saga import LEFT_TO_UNDO
from engine.flow.steps import HEADER, NOTHING, StepNote

_MOST_BYTES = 1_000_000
"""Limit on the inputs in one answer; Temporal refuses results of more than two million bytes."""
_PLAIN = b"json/plain"
_COMPLETED = "activity_task_completed_event_attributes"
_ENDS = {_COMPLETED, *(f"activity_task_{end}_event_attributes" for end in (
    "failed", "timed_out", "canceled",
))}  # fmt: skip
"""The attributes of events that end an attempt of a step for good."""


@activity.defn(name=LEFT_TO_UNDO)
async def left_to_undo(dead: dict[str, Any]) -> dict[str, Any]:
    """Return some of the steps left to undo, the newest first, and when undoing may begin.

    Args:
        dead: ``workflow_id`` and ``run_id`` of the run, and how many to ``skip``.

    Raises:
        FatalError: Temporal has forgotten the run.
    """
    client = activity.client()
    handle = client.get_workflow_handle(dead["workflow_id"], run_id=dead["run_id"])
    converter = client.data_converter
    past = _Past(converter)
    try:
        async for event in handle.fetch_history_events():
            await past.add(event)
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            name = f"{dead['workflow_id']} ({dead['run_id']})"
            raise FatalError(
                f"Temporal has forgotten {name}: undo by hand"
            ) from None  # the message alone is shown
        raise
    undos: list[dict[str, Any]] = []
    size = 0
    for step in past.left()[dead.get("skip", 0) :]:
        given = await _input_of(step, converter)
        size += len(given or "")
        if undos and size > _MOST_BYTES:
            break
        undos.append({"step": step.name, "undo": dict(step.undo), "input": given})
    quiet = past.quiet_at()
    return {"undos": undos, "quiet_at": quiet.isoformat() if quiet else None}


@dataclass
class _Step:
    """A step of the run that can be undone."""

    name: str
    undo: Mapping[str, Any]
    inputs: list[Payload]


@dataclass
class _Past:
    """Steps of a run according to its history."""

    converter: DataConverter
    steps: list[_Step] = field(default_factory=list)
    undone: set[str] = field(default_factory=set)
    patience: dict[int, timedelta] = field(default_factory=dict)
    undoing: dict[int, str] = field(default_factory=dict)
    closed_at: datetime | None = None

    async def add(self, event: HistoryEvent) -> None:
        """Process the next event."""
        self.closed_at = event.event_time.ToDatetime(tzinfo=UTC)
        if event.HasField("activity_task_scheduled_event_attributes"):
            await self._scheduled(event.event_id, event.activity_task_scheduled_event_attributes)
        elif (kind := event.WhichOneof("attributes")) in _ENDS:
            number = getattr(event, kind).scheduled_event_id
            self.patience.pop(number, None)
            if kind == _COMPLETED and number in self.undoing:
                self.undone.add(self.undoing[number])

    async def _scheduled(self, number: int, event: ActivityTaskScheduledEventAttributes) -> None:
        self.patience[number] = (
            event.heartbeat_timeout.ToTimedelta() or event.start_to_close_timeout.ToTimedelta()
        )
        note = await self._note_of(event)
        if note.undoes is not None:
            self.undoing[number] = note.undoes
        if note.undo is not None:
            self.steps.append(
                _Step(event.activity_type.name, note.undo, list(event.input.payloads))
            )

    async def _note_of(self, event: ActivityTaskScheduledEventAttributes) -> StepNote:
        if HEADER not in event.header.fields:
            return NOTHING
        payload = event.header.fields[HEADER]
        codec = self.converter.payload_codec
        if codec and payload.metadata.get("encoding") != _PLAIN:
            (payload,) = await codec.decode([payload])  # a client may encode headers too
        return StepNote.from_json(PayloadConverter.default.from_payload(payload))

    def left(self) -> list[_Step]:
        """Return the steps that were begun and are not undone, the newest first."""
        return [step for step in reversed(self.steps) if step.undo["key"] not in self.undone]

    def quiet_at(self) -> datetime | None:
        """Return by when steps in flight at the close notice it; None if there were none."""
        if not self.patience or self.closed_at is None:
            return None
        return self.closed_at + max(self.patience.values())


async def _input_of(step: _Step, converter: DataConverter) -> str | None:
    """Return the step's input for its undo, decoded by the codec; the sender encodes it again."""
    if not step.undo.get("takes_input") or not step.inputs:
        return None
    (raw,) = await converter.decode(step.inputs[:1], [RawValue])
    return base64.b64encode(raw.payload.SerializeToString()).decode()
