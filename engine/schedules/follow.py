"""``after:`` and ``needs:``, what a definition says of the schedules that come before it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from engine.schedules import chain_fields as fields
from engine.schedules.awaiting import Rule
from engine.schedules.defaults import CONFIG


class After(BaseModel):
    """The schedule before this one.

    Attributes:
        schedule: the parent's key.
        when: what its run has to come to.
        window: which of its windows is meant.
    """

    model_config = CONFIG

    schedule: fields.Parent
    when: fields.ParentWhen = "success"
    window: fields.ParentWindow = "same"

    def to_json(self) -> dict[str, Any]:
        """Return what differs from the defaults, by its file names."""
        return self.model_dump(exclude_defaults=True)


def rules(after: After | None, needs: tuple[str, ...]) -> tuple[Rule, ...]:
    """Return everything that the two fields ask for."""
    first = (Rule(after.schedule, after.when, after.window),) if after else ()
    return (*first, *(Rule(key) for key in needs))
