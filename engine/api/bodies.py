"""Bodies of requests: what the service takes, and the other names that it is known by.

A declaration is a schedule of a file as JSON; the service's own model checks it. What operators
ask for has a small model here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from engine.errors import ScheduleError
from engine.schedules import KEY, LINE, CatchUp, Overlap
from engine.schedules.loader.json_schema import json_schema
from engine.service import FIRST_MOMENT, LAST_MOMENT, BackfillOverlap, Included, Start, Status

# --- checked texts and moments ---

_LONGEST_LINE: Final = 1000
OneLine: TypeAlias = Annotated[str, Field(max_length=_LONGEST_LINE, pattern=LINE)]
"""A text of one line: it goes into logs and lists."""

Word: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, pattern=LINE)]

KeyText: TypeAlias = Annotated[str, Field(pattern=f"^{KEY.pattern}$", examples=["nightly-report"])]


_WRITTEN: Final = r"^(?:19[7-9][0-9]|20[0-9]{2}|2100)-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}"
"""How a moment begins; a number would be taken for seconds since 1970."""


def written_moment(given: Any) -> Any:
    """Return what a request has for a moment.

    Raises:
        ValueError: it is no text that begins with a date and a time.
    """
    if isinstance(given, datetime) or (isinstance(given, str) and re.match(_WRITTEN, given)):
        return given
    raise ValueError("write a moment with its offset, as 2026-12-24T18:00:00Z")


def checked_moment(moment: datetime) -> datetime:
    """Return a moment in UTC.

    Raises:
        ValueError: no schedule fires then; further away is no time of the ledger.
    """
    if not FIRST_MOMENT.year <= moment.year <= LAST_MOMENT.year + 1:
        raise ValueError("nothing fires then")
    found = moment.astimezone(UTC)
    if not FIRST_MOMENT <= found <= LAST_MOMENT:
        raise ValueError("nothing fires then")
    return found


Moment: TypeAlias = Annotated[
    AwareDatetime,
    BeforeValidator(written_moment),
    AfterValidator(checked_moment),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": _WRITTEN}),
    Field(examples=["2026-12-24T18:00:00Z"]),
]
"""A moment with an offset, of the time in which schedules fire; milliseconds count."""

Bucket: TypeAlias = Annotated[int, Field(ge=-(2**53), le=2**53, examples=[1795312800000])]
"""The number of a window, as far as JSON carries whole numbers."""


_FIELDS: Final[Mapping[str, Any]] = json_schema()["definitions"]["schedule"]["properties"]
"""Shapes of the fields of a schedule, as in a file."""


def _or_null(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return a shape that allows null, which stands for the default."""
    own = {name: value for name, value in shape.items() if name not in {"description", "default"}}
    about = {name: shape[name] for name in ("description", "default") if name in shape}
    return {**about, "anyOf": [own, {"type": "null"}]}


class Body(BaseModel):
    """A request; its names are written in camelCase, as in files."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, validate_by_name=False, validate_by_alias=True
    )


def _example(**fields: Any) -> ConfigDict:
    """Return the configuration of a request with an example, for the document."""
    return ConfigDict(json_schema_extra={"examples": [fields]})


class Reasoned(Body):
    """A request with a reason, for the audit log."""

    reason: OneLine | None = Field(None, examples=["the warehouse moves"])


# --- operators' requests ---


def checked_input(value: Any) -> tuple[Any, ...]:
    """Return the argument of a run in a tuple as the ledger stores it.

    Raises:
        ScheduleError: JSON, or the ledger, cannot carry it.
    """
    return (Start.checked_input(value),)


class PauseRequest(Reasoned):
    """Pause of a schedule; without ``until`` it lasts until it is resumed."""

    model_config = _example(reason="the warehouse moves", until="2026-12-24T18:00:00Z")

    until: Moment | None = None


class RenameRequest(Reasoned):
    """New key of an application's schedule."""

    model_config = _example(key="billing.monthly", reason="it is monthly now")

    # The service says what is wrong with one, as of a declaration.
    key: Annotated[str, WithJsonSchema({"type": "string", "pattern": f"^{KEY.pattern}$"})]


class ResumeRequest(Reasoned):
    """Resume of a schedule."""

    model_config = _example(catchUp={"policy": "latest"})

    catch_up: Annotated[CatchUp | None, WithJsonSchema(_or_null(_FIELDS["catchUp"]))] = Field(
        None,
        description="What becomes of the windows of the pause; by default the schedule's"
        " `catchUp.pause` decides.",
        examples=[{"policy": "latest"}],
    )


class RunRequest(Reasoned):
    """A request for a run, with an overlap policy and an input of its own."""

    overlap: Overlap | None = None
    input: Any = Field(
        None, description="The argument of this run; without the field it is the schedule's."
    )

    @property
    def own_input(self) -> tuple[Any, ...]:
        """The argument in a tuple as the ledger stores it; an empty one without the field.

        Raises:
            ScheduleError: JSON, or the ledger, cannot carry it.
        """
        return checked_input(self.input) if "input" in self.model_fields_set else ()


class TriggerRequest(RunRequest):
    """Start of a run now, outside of the schedule's windows."""

    model_config = _example(requestId="ticket-4711", reason="asked for")

    request_id: str | None = Field(
        None, description="Requests with the same id start one run.", examples=["ticket-4711"]
    )
    wait: Annotated[float, Field(gt=0, le=30)] | None = Field(
        None, description="Seconds to wait until the run has begun; else 503, and it begins later."
    )


class RerunRequest(RunRequest):
    """Another run of a window that was decided."""

    model_config = _example(bucket=1795312800000, reason="the data were late")

    bucket: Bucket | None = None
    at: Moment | None = Field(None, description="When the window opens, in place of `bucket`.")
    series: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


class BackfillRequest(Reasoned):
    """Runs for the windows of a range that had none."""

    model_config = _example(
        **{"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"}, dryRun=True
    )

    begin: Moment = Field(alias="from")
    end: Moment = Field(alias="to")
    overlap: BackfillOverlap | None = None
    include: list[Included] = Field(default=[], max_length=10)
    dry_run: bool = Field(default=False, description="Only say what would start.")


class WindowRequest(Reasoned):
    """One window, by its fire time."""

    model_config = _example(at="2026-12-25T02:00:00Z", reason="holiday")

    at: Moment


class CancelRequest(Reasoned):
    """Cancel of one run, or of all that is open of a schedule."""

    model_config = _example(reason="stuck", terminate=True)

    workflow_id: Annotated[str, Field(max_length=500, pattern=LINE)] | None = Field(
        None, description="The run; without it all open runs, and an application's schedule too."
    )
    terminate: bool = False
    goes_on: bool = Field(
        default=False, description="Whether an application's schedule stays as it is."
    )


# --- webhooks ---

PatternList: TypeAlias = Annotated[list[Word], Field(min_length=1, max_length=100)]


class HookChange(Reasoned):
    """Change of a webhook; null is the default of a field."""

    model_config = _example(events=["schedule.failed", "schedule.dead"])

    secret: str | None = Field(
        None,
        max_length=200,
        examples=["${env:HOOK_SECRET}"],
        description="The name of the workers' variable with the secret of the signatures.",
    )
    events: PatternList | None = Field(None, description="Patterns of names; null is every event.")
    keys: PatternList | None = Field(None, description="Patterns of keys; null is every schedule.")


class HookRequest(HookChange):
    """Webhook of a project: an address that gets events."""

    model_config = _example(
        url="https://hooks.example.com/sched",
        secret="${env:HOOK_SECRET}",  # noqa: S106 - a name
        events=["schedule.arrived"],
        keys=["billing.*"],
    )

    url: str = Field(max_length=2000, examples=["https://hooks.example.com/sched"])
    secret: str = Field(max_length=200, examples=["${env:HOOK_SECRET}"])
    project: KeyText | None = None


# --- declarations ---

OTHER_NAMES: Final[Mapping[str, str]] = {
    "cronExpression": "cron",
    "jobType": "workflow",
    "jobPayload": "input",
    "overlapPolicy": "overlap",
}
"""Other names of fields, with ours."""

_SLUG: Final = re.compile(r"[^a-z0-9]+")
_LONGEST_KEY: Final = 200

DECLARATION_EXTRAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "project": {"type": "string", "examples": ["default"], "description": "Its workers start it."},
    "reason": {"type": "string", "maxLength": 1000, "description": "For the audit log."},
    "clientRequestId": {
        "type": "string",
        "description": "A second schedule of the same id is refused.",
    },
    "name": {
        "type": "string",
        "description": "The key where it fits; else the key is made of it, and"
        " it becomes the description.",
    },
    "cronExpression": {"type": "string", "description": "The same as `cron`."},
    "jobType": {"type": "string", "description": "The same as `workflow`."},
    "jobPayload": {"description": "The same as `input`."},
    "overlapPolicy": {
        "type": "string",
        "description": "The same as `overlap`, with the same default: `allow`.",
    },
    "maxRetries": {"type": "integer", "minimum": 0, "description": "`retry.attempts`, less one."},
    "timeoutSeconds": {"type": "integer", "minimum": 1, "description": "`timeout.run` in seconds."},
}
"""What a declaration may have besides the fields of a schedule, for the documentation."""


def declared(body: Any, *, edits: bool = False) -> dict[str, Any]:
    """Return a declaration by the names of a file.

    Args:
        body: the body of the request.
        edits: whether it edits a schedule: its name is then no key, and a null is the default.

    Raises:
        ScheduleError: a field is given by two names, or its value fits no schedule.
    """
    if not isinstance(body, Mapping):
        raise ScheduleError("the body is not an object", hint="send a JSON object with the fields")
    given = {
        k: v for k, v in body.items() if edits or v is not None or k in {"input", "jobPayload"}
    }
    for other, ours in OTHER_NAMES.items():
        if other in given:
            _put(given, ours, given.pop(other), other)
    if "name" in given:
        _name(given, edits=edits)
    return given


def _put(given: dict[str, Any], ours: str, value: Any, other: str) -> None:
    if ours in given:
        raise ScheduleError(f"{other} and {ours} are given together", hint=f"keep {ours}")
    given[ours] = value


def _name(given: dict[str, Any], *, edits: bool) -> None:
    name = given.pop("name")
    if not isinstance(name, str) or not name.strip():
        raise ScheduleError("name is not a text", hint="write one, as nightly-report")
    if "key" not in given and not edits:
        plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
        fits = KEY.fullmatch(name) is not None
        given["key"] = name if fits else _SLUG.sub("-", plain).strip("-")[:_LONGEST_KEY].strip("-")
        if not given["key"]:
            raise ScheduleError("name has no letter for a key", hint="give a key too")
        if fits:
            return
    given.setdefault("description", name)


def checked_line(value: Any, name: str) -> str | None:
    """Return a text of one line of a declaration; None if there is none.

    Raises:
        ScheduleError: it is no such text.
    """
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > _LONGEST_LINE or not re.fullmatch(LINE, value):
        raise ScheduleError(f"{name} is not a text of one line", hint="write up to 1000 characters")
    return value


def declaration_schema() -> dict[str, Any]:
    """Return the JSON Schema of a declaration."""
    fields = {**_FIELDS, **DECLARATION_EXTRAS}
    del fields["was"]  # of files
    return {
        "title": "Declaration",
        "description": "A schedule as in a file; a few names of other schedulers are taken too.",
        "type": "object",
        "properties": {name: _or_null(shape) for name, shape in fields.items()},
    }


# --- words of executions ---

StatusWord: TypeAlias = Status | Literal["pending", "dispatched", "running"]
"""A status of a fire, by our word or another one."""

_WORDS: Final[Mapping[str, tuple[Status, ...]]] = {
    "pending": ("queued",),
    "dispatched": ("claimed", "starting"),
    "running": ("started",),
}


def statuses_of(word: StatusWord | None) -> tuple[Status, ...]:
    """Return the statuses that a word stands for; without a word, none."""
    if word is None:
        return ()
    return _WORDS.get(word) or (word,)  # type: ignore[return-value] # the others are ours
