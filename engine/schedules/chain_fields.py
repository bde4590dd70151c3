"""The fields about other schedules: ``after`` and ``needs``, and what each accepts."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator

from engine.errors import Code
from engine.schedules.fields import choice, key_check, refuse, show

When = Literal["success", "failure", "always"]
"""What the parent's run has to come to: it completed, it did not, or either."""

Which = Literal["same", "latest"]
"""Which window of the parent is meant: the one of the same fire time, or the newest that ran."""

MOST_NEEDED: Final = 100

_EXAMPLE: Final = "write {schedule: nightly-extract, when: success}"


def _after(value: Any) -> Any:
    if value is None or not isinstance(value, str | int | float | list):
        return value
    cure = f"write {{schedule: {value}}}" if isinstance(value, str) else _EXAMPLE
    raise refuse(f"after is {show(value)}", cure)


def _needs(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, list | tuple):
        cure = f"write [{value}]" if isinstance(value, str) else "write a list of keys, as [a, b]"
        raise refuse(f"needs is {show(value)}", cure)
    check = key_check("a key in needs")
    keys = tuple(check(key) for key in value)
    if value == []:
        raise refuse("needs is empty", "name a schedule, or remove the line")
    if len(keys) > MOST_NEEDED:
        raise refuse(
            f"needs has {len(keys)} keys", f"name at most {MOST_NEEDED}", Code.FIELD_INVALID
        )
    for place, key in enumerate(keys):
        if key in keys[:place]:
            raise refuse(f"needs names {key} twice", "name it once")
    return keys


Parent = Annotated[str, BeforeValidator(key_check("after.schedule"))]
ParentWhen = Annotated[When, choice("after.when", get_args(When))]
ParentWindow = Annotated[Which, choice("after.window", get_args(Which))]
IsAfter = BeforeValidator(_after)
Needs = Annotated[tuple[str, ...], BeforeValidator(_needs)]
