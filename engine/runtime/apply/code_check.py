"""Check of schedules against the code that runs them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from engine.errors import Code, WorkflowUnknown, did_you_mean, question
from engine.flow import WorkflowDefinition, definition_of
from engine.runtime.apply.source import Mismatch
from engine.runtime.code.declarations_check import adapter_of
from engine.schedules import (
    Declaration,
    Schedule,
    attribute_fault,
    jsonable,
    nearest_name,
    resolve_type,
)

_NAMED: Final = 5
"""Maximum number of faults reported per input; a list may have thousands."""


def known_to_fit(
    schedules: Sequence[Schedule], workflows: Iterable[type], *, types: Collection[str]
) -> list[Mismatch]:
    """Return the mismatches between schedules and classes of workflows, the only ones there are."""
    definitions = {each.type: each for cls in workflows if (each := definition_of(cls))}
    return mismatches(schedules, definitions, types=types)


def mismatches(
    schedules: Sequence[Schedule],
    code: Mapping[str, WorkflowDefinition],
    *,
    types: Collection[str] | None = None,
) -> list[Mismatch]:
    """Return the mismatches between schedules and the code.

    Args:
        schedules: the schedules; external ones are skipped, their code may be anywhere. Those
            that start nothing need no workflow; one that exists has to fit.
        code: the workflows whose inputs are known, by Temporal type.
        types: every existing type; None if that is unknown, and then a workflow that is not in
            ``code`` is no problem.
    """
    found: list[Mismatch] = []
    for schedule in schedules:
        if schedule.external:
            continue
        kind = resolve_type(schedule.workflow, code if types is None else types)
        if kind is None and types is not None and not schedule.starts_nothing:
            found.append(_unknown(schedule.key, "workflow", schedule.workflow, types, "workflow"))
        elif kind is not None and kind in code:
            found += _input(schedule, code[kind])
    # Most handlers come from `defaults`: each is reported once.
    handlers = {each.on_dead: each for each in reversed(schedules) if each.lane}
    for schedule in reversed(handlers.values()):
        found += _handler(schedule, code, types)
    return found


def _unknown(key: str, what: str, name: str, types: Collection[str], field: str) -> Mismatch:
    hint = question(nearest_name(name, types), otherwise="import the package that has it")
    message = f"{key}: there is no {what} {name}"
    return Mismatch(WorkflowUnknown.code, key, message, hint, (field,))


def _handler(
    schedule: Schedule, code: Mapping[str, WorkflowDefinition], types: Collection[str] | None
) -> Iterator[Mismatch]:
    """Check the ``onDead`` workflow, whose input is always the fire that ended badly."""
    key, name = schedule.key, schedule.on_dead
    if name is None:
        return
    kind = resolve_type(name, code if types is None else types)
    if kind is None and types is not None:
        yield _unknown(key, "onDead workflow", name, types, "onDead")
    elif kind is not None and kind in code and not code[kind].accepts_input:
        what = f"the workflow {kind} takes no input, and onDead gives it one"
        yield _wrong(key, what, "add a parameter to its run", "onDead")


def _input(schedule: Schedule, definition: WorkflowDefinition) -> Iterator[Mismatch]:
    """Compare the schedule's input with the one that the workflow takes."""
    key, kind = schedule.key, definition.type
    if not schedule.has_input:
        if definition.requires_input:
            yield _wrong(key, f"the workflow {kind} needs an input", "add input:", "workflow")
        return
    for fault in input_faults(schedule.input, definition):
        yield _wrong(key, fault.message, fault.hint, "input", *fault.path)


def declarations_of(classes: Iterable[type]) -> tuple[Declaration, ...]:
    """Return the schedules that stand beside these workflows, in their order.

    The first of a workflow has its name as the key, the next ones ``-2`` and so on behind it,
    unless they have a ``key``.
    """
    found: list[Declaration] = []
    for definition in filter(None, map(definition_of, classes)):
        for number, each in enumerate(definition.schedules, 1):
            name = definition.name
            own = {"key": name if number == 1 else f"{name}-{number}", "workflow": name}
            file = Path(each.file)
            here = file.is_relative_to(Path.cwd())
            shown = str(file.relative_to(Path.cwd()) if here else file)
            found.append(Declaration({**own, **each.fields}, shown, each.line))
    return tuple(found)


def unfit_attributes(schedules: Sequence[Schedule], kinds: Mapping[str, str]) -> list[Mismatch]:
    """Return the search attributes that the namespace does not take; their runs do without.

    Args:
        schedules: the schedules; external ones too.
        kinds: the custom search attributes of the namespace, with their kinds.
    """
    return [
        Mismatch(
            Code.SEARCH_ATTRIBUTE_INVALID,
            schedule.key,
            f"{schedule.key}: {fault[0]}",
            fault[1],
            ("searchAttributes", name),
        )
        for schedule in schedules
        for name, value in schedule.search_attributes.items()
        if (fault := attribute_fault(name, value, kinds))
    ]


@dataclass(frozen=True, slots=True)
class InputFault:
    """A fault of an input; ``path`` leads to its place."""

    message: str
    hint: str
    path: tuple[str | int, ...] = ()


def input_faults(given: object, definition: WorkflowDefinition) -> Iterator[InputFault]:
    """Compare an input with the one that a workflow takes."""
    kind = definition.type
    if not definition.accepts_input:
        yield InputFault(f"the workflow {kind} takes no input", "remove input:")
        return
    wanted = definition.input_type
    for path, fault in _faults(given, wanted):
        name = ".".join(["input", *map(str, path)])
        yield InputFault(f"{name}: {fault}", f"the workflow {kind} takes {_name(wanted)}", path)
    for name in _left_out(given, wanted):
        hint = did_you_mean(name, [each.name for each in fields(wanted)], "remove it")
        yield InputFault(f"input.{name}: {_name(wanted)} has no such field", hint, (name,))


# What workers announce of an input, for services that have no code. JSON Schema is stricter than
# pydantic with plain values ("1" is a number to it), so only what pydantic refuses too is compared:
# what has to be an object, a list or a number, its fields, and the words of an enumeration.


def announced_inputs(workflows: Iterable[type]) -> dict[str, dict[str, Any]]:
    """Return what these workflows take, by Temporal type."""
    definitions = filter(None, map(definition_of, workflows))
    return {
        each.type: {
            "takes": each.accepts_input,
            "needs": each.requires_input,
            "schema": _schema(each.input_type) if each.accepts_input else {},
        }
        for each in definitions
    }


def _schema(wanted: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type; that of anything for one that has none."""
    adapter = _adapter(wanted)
    if adapter is None or _reads_otherwise(adapter.core_schema):
        return {}
    try:
        schema = adapter.json_schema()
        json.dumps(schema, allow_nan=False)
    except Exception:  # noqa: BLE001 - a type makes its own schema, and then nothing is compared
        return {}
    return schema


_OWN_READERS: Final = {"function-before", "function-wrap", "function-plain"}


def _reads_otherwise(schema: object) -> bool:
    """Return whether a validator of the type itself reads values that its schema does not name."""
    if isinstance(schema, Mapping):
        own = schema.get("type") in _OWN_READERS or schema.get("missing") is not None
        return own or any(map(_reads_otherwise, schema.values()))
    return isinstance(schema, list | tuple) and any(map(_reads_otherwise, schema))


def announced_faults(
    given: tuple[Any, ...], announced: Mapping[str, Any], workflow_type: str
) -> list[str]:
    """Return a sentence for each fault of an input, or none, by what was announced."""
    if not given:
        needs = announced["needs"]
        return [f"the workflow {workflow_type} needs an input; give one"] if needs else []
    if not announced["takes"]:
        return [f"the workflow {workflow_type} takes no input; leave it out"]
    schema = announced["schema"]
    return [
        f"{'.'.join(['input', *map(str, fault.absolute_path)])}: {fault.message};"
        f" the workflow {workflow_type} takes {schema.get('title') or 'another input'}"
        for fault in islice(_structure()(schema).iter_errors(given[0]), _NAMED)
    ]


_STRUCTURE: Final = (
    "$ref", "allOf", "anyOf", "type", "properties", "items", "prefixItems", "enum", "const",
)  # fmt: skip


@cache
def _structure() -> Any:
    from jsonschema import Draft202012Validator, ValidationError, validators  # type: ignore[import-untyped] # noqa: PLC0415 - for inputs alone

    def required(_: object, names: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        # A field may be there by another name, such as an alias.
        if isinstance(value, Mapping) and set(value) <= set(schema.get("properties", ())):
            yield from (
                ValidationError(f"{each!r} is missing") for each in names if each not in value
            )

    def additional(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        if isinstance(wanted, Mapping):  # as above, if no others are allowed
            yield from rules["additionalProperties"](validator, wanted, value, schema)

    rules = Draft202012Validator.VALIDATORS
    types = {"string": _is_plain, "boolean": _is_plain, "integer": _counts, "number": _counts}
    return validators.create(
        meta_schema={},
        validators={name: rules[name] for name in _STRUCTURE}
        | {"oneOf": rules["anyOf"], "required": required, "additionalProperties": additional},
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(types),
    )


def _is_plain(_: object, value: object) -> bool:
    return isinstance(value, str | int | float)


def _counts(_: object, value: object) -> bool:
    try:
        float(value if isinstance(value, str | int | float) else "")
    except ValueError:
        return False
    return True


def _wrong(key: str, what: str, hint: str, *path: str | int) -> Mismatch:
    return Mismatch(Code.INPUT_INVALID, key, f"{key}: {what}", hint, path)


def _left_out(value: Any, wanted: Any) -> list[str]:
    """Return the unknown fields that decoding into a plain dataclass silently drops.

    Pydantic types are left out: their configuration decides about extra fields.
    """
    if not is_dataclass(wanted) or hasattr(wanted, "__pydantic_config__"):
        return []
    known = {each.name for each in fields(wanted)}
    return [name for name in value if name not in known] if isinstance(value, Mapping) else []


def _faults(value: Any, wanted: Any) -> list[tuple[tuple[str | int, ...], str]]:
    """Decode an input as a worker with the plugin does; return the path and text of each fault."""
    adapter = _adapter(wanted)
    if adapter is None:
        return []
    try:
        adapter.validate_json(json.dumps(jsonable(value)))
    except ValidationError as error:
        return [(each["loc"], each["msg"]) for each in error.errors()[:_NAMED]]
    return []


def _adapter(wanted: Any) -> TypeAdapter[Any] | None:
    try:
        return None if wanted is None else adapter_of(wanted)
    except Exception:  # noqa: BLE001 - it is reported once for the workflow: see `unreadable`
        return None


def _name(wanted: Any) -> str:
    return getattr(wanted, "__name__", None) or str(wanted)
