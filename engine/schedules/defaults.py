"""The fields that schedules commonly share: what a file's ``defaults:`` may hold."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from engine.schedules import fields, policy_fields, when_fields
from engine.schedules.catch_up import CatchUp
from engine.schedules.retention import Retention

CONFIG: Final = ConfigDict(
    frozen=True,
    extra="forbid",
    alias_generator=to_camel,
    validate_by_name=True,
    validate_by_alias=True,
)
"""Of every model: camelCase in files, snake_case in Python, and nothing else."""


class Defaults(BaseModel):
    """What a file's ``defaults:`` may hold: the fields that schedules commonly share."""

    model_config = CONFIG

    timezone: fields.Timezone | None = None
    task_queue: fields.TaskQueue | None = None
    overlap: policy_fields.OverlapPolicy | None = None
    max_concurrent_runs: policy_fields.MaxConcurrentRuns | None = None
    catch_up: Annotated[CatchUp, policy_fields.IsCatchUp] | None = None
    grace: fields.Grace | None = None
    enabled: fields.Enabled | None = None
    external: fields.External | None = None
    first_fire: fields.FirstFire = None
    dst: when_fields.DstPolicy | None = None
    exclude: when_fields.Exclude | None = None
    spread: fields.Spread | None = None
    on_dead: fields.OnDead = None
    retention: Annotated[Retention, policy_fields.IsRetention] | None = None
    metadata: fields.Metadata | None = None
