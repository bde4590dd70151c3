"""Failures: steps that keep failing, why a run failed, and how often it was tried."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Literal, Self

from engine.schedules import exact_text, storable

# --- records as JSON ---
# Columns have JSON to which later versions may add fields: so it is read by name.

_MOMENTS: Final = frozenset(
    {"since", "next_attempt_at", "fire_time", "started_at", "open_at", "closed_at"}
)


def with_moments(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields that were read as JSON, with their moments in UTC."""
    read = {name: datetime.fromisoformat(found[name]) for name in _MOMENTS if found.get(name)}
    return {**found, **{name: moment.astimezone(UTC) for name, moment in read.items()}}


class KeptRecord:
    """A record that a column keeps as JSON, and commands print."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_json(self) -> dict[str, object]:
        """Return its fields, with its moments as text."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        moments = {name: exact_text(found[name]) for name in _MOMENTS & found.keys() if found[name]}
        return found | moments

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return the record of ``to_json``, of this version or a later one."""
        known = {name: found[name] for name in cls.__dataclass_fields__ if name in found}
        return cls(**with_moments(known))


# --- steps that keep failing ---
# What the tracker saw of the pending steps of an open run. The column has JSON, to which later
# versions may add fields: so it is compared as a whole, and read by name.


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingStep(KeptRecord):
    """A step of an open run whose last attempt has failed, or the run's own code.

    Attributes:
        step: the name of the step.
        place: the activity id, unique in the run; empty for the workflow task, in which the code of
            the run itself is executed.
        run_id: the run; a reset run, or one that continued as new, has the same places.
        child: the workflow id of the child whose step it is; None for a step of the run itself.
        attempts: the number of failed attempts, from 1.
        max_attempts: the number of attempts that its retry rule allows; None is no limit.
        error_type: the type of the last error. If it changes, the step fails in another way.
        error: the first line of the last error, after its type.
        since: when it first failed, if one attempt has; otherwise when the step was scheduled.
        next_attempt_at: when the next attempt begins; None if it runs now, or is paused.
    """

    step: str
    place: str
    run_id: str
    child: str | None = None
    attempts: int
    max_attempts: int | None
    error_type: str
    error: str
    since: datetime
    next_attempt_at: datetime | None

    @property
    def is_stuck(self) -> bool:
        """Whether the run itself cannot continue."""
        return not self.place

    @property
    def named(self) -> str:
        """The step and its place, and the child that it belongs to."""
        of = f" of the child {self.child}" if self.child else ""
        return f"step {self.step} ({self.place}){of}"

    def __str__(self) -> str:
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        if self.is_stuck:
            return f"stuck, its {self.step} has failed {times}: {self.error}"
        of = f" of {self.max_attempts}" if self.max_attempts else ""
        begins = "has begun"
        if self.next_attempt_at is not None:
            begins = f"comes at {self.next_attempt_at:%Y-%m-%d %H:%M:%SZ}"
        return (
            f"{self.named} has failed {times}, attempt {self.attempts + 1}{of} {begins}:"
            f" {self.error}"
        )


@dataclass(frozen=True, slots=True)
class FailingNote:
    """The failing steps of an open run as they are now, in place of those noted ``before``.

    Both are the JSON of ``failing_text``, None for no step; ``before`` as the ledger returned it.
    """

    workflow_id: str
    before: str | None
    now: str | None


def failing_text(steps: Sequence[FailingStep]) -> str | None:
    """Return the JSON of failing steps; None if there are none."""
    return json.dumps([step.to_json() for step in steps]) if steps else None


def as_failing(text: str | None) -> tuple[FailingStep, ...]:
    """Return the failing steps in the JSON of ``failing_text``."""
    return tuple(map(FailingStep.from_json, json.loads(text))) if text else ()


# --- why a run failed ---
# The chain of errors of a run, from the outermost to the innermost. The ledger keeps it with the
# fire, bounded, so that it can be read when Temporal has forgotten the run.

GivenUp = Literal["retries_exhausted", "fatal"]
"""How a step ended its run: its attempts were used up, or its error allowed no other."""

DeathCause = Literal["retries_exhausted", "fatal", "failed", "timed_out", "rejected"]
"""Why a fire is a dead letter. ``failed``: an error that no step ended the run with."""

KEPT_BYTES: Final = 16 * 1024
"""Limit on the JSON of a chain of errors, in UTF-8."""
_LINKS: Final = 20
_STACKS: Final = (4000, 2000, 1000, 400, 100, 0)
_MESSAGES: Final = (2000, 500, 100)
"""Limits on the characters of a stack trace and of a message, tried in turn until all fits."""
_NAMES: Final = 200


def death_cause(status: str, given_up: GivenUp | None) -> DeathCause:
    """Return why a fire of this status is a dead letter; the view ``dead_letters`` has the same."""
    if status == "timed_out":
        return "timed_out"
    return "rejected" if status == "rejected" else given_up or "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLink(KeptRecord):
    """One error of a chain.

    Attributes:
        type: the type of the error.
        message: what it says, without its type.
        step: the step that failed with it, or None; ``child`` likewise the type of a child.
        attempt: the number of the step's last attempt; None if it is not known.
        stack: its stack trace, the innermost frames of a long one; empty without any.
        given_up: how the step ended its run.
    """

    type: str
    message: str
    step: str | None = None
    child: str | None = None
    attempt: int | None = None
    stack: str = ""
    given_up: GivenUp | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a run failed: every text and label about it is derived from this value.

    Attributes:
        chain: its errors, the outermost first.
        error: the innermost cause in one line, after the children and the step it occurred in.
        not_undone: a JSON list of the steps that the run could not undo; None without any.
    """

    chain: tuple[FailureLink, ...]
    error: str
    not_undone: str | None = None

    @property
    def error_type(self) -> str:
        """The type of the innermost error."""
        return self.chain[-1].type

    @property
    def given_up(self) -> GivenUp | None:
        """How the innermost step gave up that ended the run; None if no step did."""
        return next((link.given_up for link in reversed(self.chain) if link.given_up), None)


def failure_text(failure: Failure | None) -> str | None:
    """Return the JSON of a chain that the ledger keeps, of at most ``KEPT_BYTES``.

    Of a long chain the middle is left out: the outermost error and the innermost ones stay. Then
    stack traces are cut, and at last messages. This is the only place that makes the column.
    """
    if failure is None:
        return None
    text = ""
    for text in _texts(failure.chain):
        if len(text.encode()) <= KEPT_BYTES:
            break
    return text


def _texts(chain: Sequence[FailureLink]) -> Iterator[str]:
    """Yield the JSON of a chain, each time with less of it; the last one is small enough."""
    kept = [*chain[:1], *chain[1:][-(_LINKS - 1) :]]
    limits = [(stack, _MESSAGES[0]) for stack in _STACKS] + [(0, each) for each in _MESSAGES[1:]]
    for stack, message in limits:
        cut = [_cut(link, stack=stack, message=message).to_json() for link in kept]
        yield json.dumps(cut, ensure_ascii=False)


def _cut(link: FailureLink, *, stack: int, message: int) -> FailureLink:
    return replace(
        link,
        type=storable(link.type)[:_NAMES],
        message=storable(link.message)[:message],
        step=link.step and storable(link.step)[:_NAMES],
        child=link.child and storable(link.child)[:_NAMES],
        stack=storable(link.stack)[-stack:] if stack else "",
    )


def as_failure(text: str | None) -> tuple[FailureLink, ...]:
    """Return the chain in the JSON of ``failure_text``, of this version or a later one."""
    return tuple(map(FailureLink.from_json, json.loads(text or "[]")))


# --- tries of a run ---
# Temporal starts a run anew, by its retry rule, under the same workflow id. Each such run of the
# chain is a try.

Counted = Literal["reported", "elsewhere", "wanted", "read"]
"""Where the counts of a fire come from: workers report them; workers that report nothing run a
step of the open run; they are still to be read from Temporal's history; or they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try(KeptRecord):
    """One try of a run.

    Attributes:
        number: from 1.
        error: the error that ended it, in one line; None if it was completed or is open.
    """

    number: int
    run_id: str
    started_at: datetime
    closed_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCounts:
    """How often a closed run and its steps were tried, read from Temporal's history.

    Attributes:
        tries: the number of the last try; None if Temporal has forgotten it.
        step_retries: attempts of its steps after the first of each, over all tries; None if not
            all of the history was read.
        tried: the newest tries, the oldest first.
    """

    workflow_id: str
    run_id: str
    tries: int | None = None
    step_retries: int | None = None
    tried: tuple[Try, ...] = ()

    @property
    def tried_text(self) -> str | None:
        """The JSON of the tries; None without any."""
        return tries_text(self.tried)


def tries_text(tried: Sequence[Try]) -> str | None:
    """Return the JSON of tries; None without any."""
    if not tried:
        return None
    return json.dumps([each.to_json() for each in tried], ensure_ascii=False)


def as_tries(text: str | None) -> tuple[Try, ...]:
    """Return the tries in the JSON of ``tried_text``, of this version or a later one."""
    return tuple(map(Try.from_json, json.loads(text or "[]")))


@dataclass(frozen=True, slots=True)
class Uncounted:
    """A closed run whose counts are still to be read from Temporal's history."""

    workflow_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class RetryNote:
    """A worker's report on the steps of a run, since its last one.

    Attributes:
        retries: further attempts that began here.
        elsewhere: whether the run called a step on a task queue whose workers report nothing.
    """

    workflow_id: str
    retries: int
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class RunDetails:
    """Details of a run that the ledger keeps beside the columns of its fire.

    Attributes:
        failure: the chain of errors of a run that ended badly, the outermost first.
        tried: its tries, as they were read at its close.
        second_runs: runs of other chains that were started under its id.
    """

    failure: tuple[FailureLink, ...] = ()
    tried: tuple[Try, ...] = ()
    second_runs: tuple[str, ...] = ()


def as_details(
    failure: str | None, tried: str | None, second_runs: Sequence[str] | None
) -> RunDetails:
    """Return the details in the JSON of ``failure_text`` and ``tries_text``."""
    return RunDetails(as_failure(failure), as_tries(tried), tuple(second_runs or ()))
