"""``catchUp:``, what a schedule's definition says of windows that were missed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from engine.schedules import policy_fields as fields
from engine.schedules.durations import format_duration
from engine.schedules.rates import Rate

Cause = Literal["pause", "deploy"]


class CatchUp(BaseModel):
    """What happens to windows that were missed for longer than ``grace``.

    Attributes:
        policy: after an outage. ``latest``: one run, of the newest missed window; ``all``: a run
            of each; ``none``: no run.
        window: older windows expire.
        max: with ``all``, the newest so many run and the others expire.
        order: with ``all``, whether the ``oldest`` or the ``newest`` of them starts first.
        rate: with ``all``, how fast they start; None as fast as it goes.
        pause: the policy after an operator's pause.
        deploy: the policy after a time in which the file had disabled the schedule.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
    )

    policy: fields.Policy = "latest"
    window: fields.Window = timedelta(hours=24)
    max: fields.Max = fields.MOST_CAUGHT_UP
    order: fields.Order = "oldest"
    rate: fields.StartRate = None
    pause: fields.AfterPause = "none"
    deploy: fields.AfterDeploy = "none"

    def after(self, cause: Cause) -> CatchUp | None:
        """Return what holds after a pause or a deploy, or None where nothing is made up for."""
        policy = self.pause if cause == "pause" else self.deploy
        return None if policy == "none" else self.model_copy(update={"policy": policy})

    def to_json(self) -> dict[str, Any]:
        """Return what differs from the defaults, by its file names."""
        return {
            name: _jsonable(value)
            for name, field in type(self).model_fields.items()
            if (value := getattr(self, name)) != field.default
        }


def _jsonable(value: object) -> object:
    if isinstance(value, timedelta):
        return format_duration(value)
    return str(value) if isinstance(value, Rate) else value
