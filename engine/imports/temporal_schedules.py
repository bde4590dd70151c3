"""Schedules of a Temporal namespace as schedules of a file, read from the server.

The server has turned cron expressions into calendars, whose fields all have to match. One Temporal
schedule may have several calendars and intervals; those that one cron cannot express become
schedules of their own. Inputs are decoded by the client's data converter.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Final

from temporalio.client import (
    Client,
    ScheduleActionStartWorkflow,
    ScheduleCalendarSpec,
    ScheduleDescription,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    ScheduleSpec,
)
from temporalio.common import RetryPolicy
from temporalio.service import RPCError

from engine.errors import ImportUnreadable, TemporalUnavailable
from engine.imports.cron import TEMPORAL, WEEKDAYS, both_days, expression, settle_clock, values_text
from engine.imports.entries import Collector, Draft, Import, NotExpressed, Options, Remark
from engine.schedules import MOST_TRIES, NATIVE, format_duration

_OVERLAPS: Final = {
    ScheduleOverlapPolicy.SKIP: "skip",
    ScheduleOverlapPolicy.BUFFER_ONE: "queue_one",
    ScheduleOverlapPolicy.BUFFER_ALL: "queue",
    ScheduleOverlapPolicy.CANCEL_OTHER: "cancel_previous",
    ScheduleOverlapPolicy.TERMINATE_OTHER: "terminate_previous",
    ScheduleOverlapPolicy.ALLOW_ALL: "allow",
}
_DEFAULT_CATCH_UP: Final = timedelta(days=365)
_BOUNDS: Final = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day_of_month": (1, 31),
    "month": (1, 12),
    "day_of_week": (0, 6),
}
_TIMES: Final = ("second", "minute", "hour")
_EXCLUDED_DAYS: Final = 5 * 366
"""How far ahead days of a calendar that is skipped are listed."""

_TWICE: Final = (
    "several calendars or intervals of a Temporal schedule are a schedule each: fires at one moment"
    " are two runs, and overlap is that of each"
)

_CalendarValues = Mapping[str, frozenset[int]]
"""Values of each field; no value of ``year`` is every year."""


@dataclass(frozen=True, slots=True)
class _Decoded:
    """Parts of an action that its payloads were decoded to."""

    args: Sequence[Any]
    memo: Mapping[str, Any]


async def read_schedules(
    client: Client, options: Options, *, prefix: str = "", patience: timedelta | None = None
) -> Import:
    """Read the schedules of the client's namespace whose id begins with a prefix.

    Args:
        client: a client of the namespace.
        options: those of every import.
        prefix: how their ids begin.
        patience: how long each call may take.

    Raises:
        TemporalUnavailable: the server does not answer.
        ImportUnreadable: there is no such schedule.
    """
    entries, found = Collector(options), 0
    try:
        async for listed in await client.list_schedules(rpc_timeout=patience):
            if not listed.id.startswith(prefix):
                continue
            found += 1
            draft = Draft(f"schedule {listed.id}", "")
            try:
                of = await client.get_schedule_handle(listed.id).describe(rpc_timeout=patience)
            except ValueError as error:
                entries.refuse(draft, f"this SDK cannot read it: {error}")
            else:
                await _add(entries, of, options)
    except RPCError as error:
        raise TemporalUnavailable(f"the schedules could not be read: {error}") from error
    if not found:
        what = f"no schedule that begins with {prefix!r}" if prefix else "no schedule"
        raise ImportUnreadable(
            f"namespace {client.namespace} has {what}", hint="name its namespace"
        )
    return entries.imported(f"the Temporal schedules of namespace {client.namespace}", *_remarks())


def _remarks() -> Iterator[Remark]:
    yield Remark("note", "action", "workflows are started by their types, as written: external")
    yield Remark(
        "difference",
        "ids",
        "Temporal names a run <id>-<time>; here it is sched:<key>:<bucket>, and its memo and search"
        " attributes name no Temporal schedule",
    )


async def _add(entries: Collector, of: ScheduleDescription, options: Options) -> None:
    draft = Draft(f"schedule {of.id}", "", of.id, NATIVE)
    action = of.schedule.action
    if not isinstance(action, ScheduleActionStartWorkflow):
        entries.refuse(draft, f"its action is {type(action).__name__}, which starts no workflow")
        return
    try:
        args = await of.data_converter.decode(list(action.args)) if action.args else []
        memo = {
            name: (await of.data_converter.decode([payload]))[0]
            for name, payload in (action.memo or {}).items()
        }
        decoded = _Decoded(args, memo)
        json.dumps([args, memo])
    except Exception as error:  # noqa: BLE001 - a codec or a converter of the team, which may fail with anything
        entries.refuse(draft, f"its input cannot be read as JSON: {type(error).__name__}: {error}")
        return
    for calendar in (*of.schedule.spec.calendars, *of.schedule.spec.skip):
        if calendar.comment:
            draft.note("action", f"comment: {calendar.comment}")
    parts = _parts(of.schedule.spec)
    if not parts:
        entries.refuse(draft, "it has no calendar and no interval: it never fires by itself")
    for number, part in enumerate(parts):
        one = Draft(draft.place, _shown(part), of.id, NATIVE, remarks=[*draft.remarks])
        if number:
            one.differs("twice", _TWICE)
        fill = partial(_fill, of=of, action=action, part=part, decoded=decoded, options=options)
        entries.add(one, fill)


def _fill(
    draft: Draft,
    *,
    of: ScheduleDescription,
    action: ScheduleActionStartWorkflow,
    part: _CalendarValues | ScheduleIntervalSpec,
    decoded: _Decoded,
    options: Options,
) -> None:
    spec = of.schedule.spec
    draft.fields |= {"workflow": action.workflow, "external": True, "taskQueue": action.task_queue}
    if isinstance(part, ScheduleIntervalSpec):
        _interval(draft, part)
    else:
        _calendar(draft, part, spec.time_zone_name or "UTC", options.now)
    _bounds(draft, spec)
    _excluded(draft, part, spec, options.now)
    if spec.jitter:
        draft.jitter(spec.jitter, of="Temporal")
    _policies(draft, of)
    _action(draft, action, decoded)
    _name_others(draft, of)


_READ: Final[Mapping[str, Collection[str]]] = {
    "spec.": {
        "calendar",
        "cron_string",
        "end_time",
        "exclude_calendar",
        "exclude_structured_calendar",
        "interval",
        "jitter",
        "start_time",
        "structured_calendar",
        "timezone_name",
    },
    "policies.": {"catchup_window", "overlap_policy", "pause_on_failure"},
    "state.": {"limited_actions", "notes", "paused", "remaining_actions"},
    "action.": {
        "header",
        "input",
        "memo",
        "priority",
        "retry_policy",
        "search_attributes",
        "task_queue",
        "user_metadata",
        "workflow_execution_timeout",
        "workflow_id",
        "workflow_run_timeout",
        "workflow_task_timeout",
        "workflow_type",
    },
}
"""Fields of the server's messages that are read here, by the SDK's names for them."""


def _name_others(draft: Draft, of: ScheduleDescription) -> None:
    """Open the server's own messages, so that a field which the SDK lacks is named too."""
    raw = of.raw_description
    messages = {
        "spec.": raw.schedule.spec,
        "policies.": raw.schedule.policies,
        "state.": raw.schedule.state,
        "action.": raw.schedule.action.start_workflow,
    }
    for name, message in messages.items():
        set_fields = {field.name: value for field, value in message.ListFields()}
        draft.open(set_fields, name).pass_over(*_READ[name])
    own = {"memo": raw.memo.fields, "search_attributes": raw.search_attributes.indexed_fields}
    for name, found in own.items():
        if found:
            draft.lacks("action", f"{name} of the schedule itself ({', '.join(sorted(found))})")


# --- times ---


def _parts(spec: ScheduleSpec) -> list[_CalendarValues | ScheduleIntervalSpec]:
    """Return calendars, those merged that differ in one field only, and intervals."""
    merged: list[_CalendarValues] = []
    for calendar in map(_calendar_values, spec.calendars):
        for number, other in enumerate(merged):
            apart = [name for name in calendar if calendar[name] != other[name]]
            if len(apart) <= 1 and "year" not in apart:
                merged[number] = {name: other[name] | calendar[name] for name in other}
                break
        else:
            merged.append(calendar)
    return [*merged, *spec.intervals]


def _calendar_values(of: ScheduleCalendarSpec) -> _CalendarValues:
    return {
        name: frozenset(
            value
            for each in getattr(of, name)
            for value in range(each.start, max(each.start, each.end) + 1, each.step or 1)
        )
        for name in (*_BOUNDS, "year")
    }


def _shown(part: _CalendarValues | ScheduleIntervalSpec) -> str:
    if isinstance(part, ScheduleIntervalSpec):
        return f"every {part.every}" + (f" offset {part.offset}" if part.offset else "")
    return ", ".join(
        f"{name} {values_text(part[name], *bounds)}"
        for name, bounds in _BOUNDS.items()
        if part[name]
    )


def _interval(draft: Draft, part: ScheduleIntervalSpec) -> None:
    for name, length in (("everyMs", part.every), ("offsetMs", part.offset)):
        if not length:
            continue
        draft.fields[name] = int(length.total_seconds()) * 1000
        if length.microseconds:
            draft.note("phase", f"{length} is {draft.fields[name]} ms: Temporal drops fractions")


def _calendar(draft: Draft, part: _CalendarValues, zone: str, now: datetime) -> None:
    day, weekday = both_days(draft, part["day_of_month"], part["day_of_week"], "Temporal")
    second, minute, hour, month = (
        values_text(part[name], *_BOUNDS[name]) for name in (*_TIMES, "month")
    )
    draft.fields["cron"] = expression((second, minute, hour, day, month, weekday))
    draft.fields["timezone"] = zone
    if part["year"]:
        draft.years(part["year"])
    settle_clock(draft, TEMPORAL, now)


def _bounds(draft: Draft, spec: ScheduleSpec) -> None:
    for name, moment in (("start", spec.start_at), ("end", spec.end_at)):
        if moment is None:
            continue
        if name in draft.fields:
            raise NotExpressed("it has years beside start_at or end_at")
        whole = moment.astimezone(UTC).replace(microsecond=0)
        later = name == "start" and moment.microsecond
        draft.fields[name] = (whole + timedelta(seconds=1) if later else whole).isoformat()


def _excluded(
    draft: Draft, part: _CalendarValues | ScheduleIntervalSpec, spec: ScheduleSpec, now: datetime
) -> None:
    """Exclude the days that Temporal skips.

    Raises:
        NotExpressed: it skips some times of a day, and fires at others.
    """
    found: list[str] = draft.fields.pop("exclude", [])
    for skipped in map(_calendar_values, spec.skip):
        times = {name: frozenset(range(low, high + 1)) for name, (low, high) in _BOUNDS.items()}
        fires = times if isinstance(part, ScheduleIntervalSpec) else part
        if any(not fires[name] & skipped[name] for name in _TIMES):
            continue  # it skips nothing of what fires
        if any(not fires[name] <= skipped[name] for name in _TIMES):
            raise NotExpressed("it skips some times of a day and fires at others; exclude has days")
        found += _days(draft, skipped, now)
    if found:
        draft.fields["exclude"] = list(dict.fromkeys(found))
        draft.fields.setdefault("timezone", spec.time_zone_name or "UTC")


def _days(draft: Draft, skipped: _CalendarValues, now: datetime) -> list[str]:
    full = {name: len(skipped[name]) == high - low + 1 for name, (low, high) in _BOUNDS.items()}
    if full["day_of_month"] and full["month"] and not skipped["year"]:
        return [WEEKDAYS[value] for value in sorted(skipped["day_of_week"])]
    days = (now.date() + timedelta(days=number) for number in range(_EXCLUDED_DAYS))
    found = [day.isoformat() for day in days if _is_skipped(day, skipped)]
    if not skipped["year"]:
        last = now.date() + timedelta(days=_EXCLUDED_DAYS)
        draft.differs("limits", f"skip has no end in Temporal; exclude lists its days until {last}")
    return found


def _is_skipped(day: date, skipped: _CalendarValues) -> bool:
    return (
        day.day in skipped["day_of_month"]
        and day.month in skipped["month"]
        and day.isoweekday() % len(WEEKDAYS) in skipped["day_of_week"]
        and (not skipped["year"] or day.year in skipped["year"])
    )


# --- policies and action ---


def _policies(draft: Draft, of: ScheduleDescription) -> None:
    policy, state = of.schedule.policy, of.schedule.state
    draft.fields["overlap"] = _OVERLAPS.get(policy.overlap, "skip")
    age = policy.catchup_window or _DEFAULT_CATCH_UP
    draft.catch_up(age, of="Temporal", policy="all")
    if policy.pause_on_failure:
        draft.put("pauseAfterFailures", 1, "pause", "pause_on_failure")
    if state.limited_actions and state.remaining_actions:
        draft.put("limit", state.remaining_actions, "limits", "remaining_actions")
    elif state.limited_actions:
        draft.fields["paused"] = True
        draft.differs("limits", "no action remains, so it starts nothing; here it begins paused")
    if state.paused:
        draft.fields["paused"] = True
        note = f" ({state.note})" if state.note else ""
        draft.note(
            "pause", f"it is paused{note}, and so begins the schedule; sched resume starts it"
        )
    elif state.note:
        draft.note("pause", f"note: {state.note}")


def _action(draft: Draft, action: ScheduleActionStartWorkflow, decoded: _Decoded) -> None:
    if len(decoded.args) > 1:
        raise NotExpressed(f"its workflow takes {len(decoded.args)} arguments; input is one")
    if decoded.args:
        draft.fields["input"] = decoded.args[0]
    for kind in ("run", "execution", "task"):
        if value := getattr(action, f"{kind}_timeout"):
            value = min(value, action.execution_timeout or value)  # as the server does
            draft.put(f"timeout.{kind}", format_duration(value), "limits", f"{kind}_timeout")
    _labels(draft, action, decoded)
    if action.retry_policy:
        _retry(draft, action.retry_policy)


def _labels(draft: Draft, action: ScheduleActionStartWorkflow, decoded: _Decoded) -> None:
    if action.priority.priority_key:
        draft.put("priority", action.priority.priority_key, "limits", "priority")
    if turn := action.priority.fairness_key:
        weight = action.priority.fairness_weight
        fields = {"key": turn, "weight": weight} if weight else turn
        draft.put("fairness", fields, "limits", "fairness_key")
    if decoded.memo:
        draft.put("memo", dict(decoded.memo), "action", f"the memo ({', '.join(decoded.memo)})")
    attributes = {pair.key.name: _plain(pair.value) for pair in action.typed_search_attributes}
    if attributes:
        of = f"the search attributes ({', '.join(attributes)})"
        draft.put("searchAttributes", attributes, "action", of)
    for name in ("static_summary", "static_details", "headers", "untyped_search_attributes"):
        if getattr(action, name):
            draft.lacks("action", f"{name} is not imported")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return list(value) if isinstance(value, Collection) and not isinstance(value, str) else value


def _retry(draft: Draft, policy: RetryPolicy) -> None:
    attempts = policy.maximum_attempts or MOST_TRIES
    if not policy.maximum_attempts:
        draft.differs("retry", f"Temporal tries without end; here {MOST_TRIES} times")
    if attempts > MOST_TRIES:
        draft.differs("retry", f"Temporal tries {attempts} times; here {MOST_TRIES}")
    initial = max(policy.initial_interval, timedelta(seconds=1))
    if initial != policy.initial_interval:
        draft.differs("retry", "the first wait is at least a second here")
    draft.fields["retry"] = {
        "attempts": min(attempts, MOST_TRIES),
        "initial": format_duration(initial),
        "coefficient": policy.backoff_coefficient,
    }
    if policy.maximum_interval:
        draft.fields["retry"]["max"] = format_duration(max(policy.maximum_interval, initial))
    if policy.non_retryable_error_types:
        names = ", ".join(policy.non_retryable_error_types)
        draft.lacks(
            "retry", f"errors that are not tried again ({names}): the workflow says so here"
        )
