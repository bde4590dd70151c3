"""Judgement of a look: from what the ledger knows to the conditions that last. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final, Literal

from engine.errors import Code
from engine.ledger import IN_HAND, Condition, Facts, Letters, Overdue, Recent, SeenReplica, Watched
from engine.runtime.workflow_workers import mixed_queues, no_worker_polls
from engine.schedules import CHOSEN, STOOD_FOR, first_of, format_duration, utc_text
from engine.schedules.planner import FAILED

NotFiredCause = Literal[
    "no_replica",
    "task_queue_unserved",
    "workflow_unknown",
    "temporal_unreachable",
    "clock_hold",
    "plan_failed",
    "no_answer",
    "paused",
    "undecided",
]
"""The probable cause of a window that has not fired."""

JUDGED: Final = frozenset(
    {
        Code.NOT_FIRED,
        Code.FIRED_LATE,
        Code.FAILURES_IN_ROW,
        Code.SKIPPED_IN_ROW,
        Code.PAUSED_AFTER_FAILURES,
        Code.REPLICA_VANISHED,
        Code.TASK_QUEUE_UNPOLLED,
        Code.TASK_QUEUE_MIXED,
        Code.DEAD_LETTERS,
    }
)
"""Every kind of condition that a look judges by what is in the ledger."""

_OF_REPLICAS: Final = frozenset({Code.REPLICA_VANISHED, Code.TASK_QUEUE_MIXED})

_REPLACED = timedelta(minutes=10)
"""Time after which a vanished replica is forgotten, if others serve its task queue."""
_NAMED = 5
_NOT_COUNTED = CHOSEN | STOOD_FOR
"""Reasons of a skip that was chosen, or that another run stands for."""
_TIMED = frozenset({"on_time", "late", "caught_up"})


@dataclass(frozen=True, slots=True)
class WatchContext:
    """Knowledge of the process that looks, besides the ledger.

    Attributes:
        temporal: why Temporal cannot be reached from here; None if it can.
        clock: why the ledger's clock is not trusted; None if it is.
        drain: how long a worker of a deploy before may take to leave.
    """

    temporal: str | None = None
    clock: str | None = None
    drain: timedelta = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The conditions that last, and the kinds that could be judged."""

    conditions: Sequence[Condition]
    of: Collection[Code] = field(default=JUDGED)


def judge(facts: Facts, around: WatchContext) -> Judgement:
    """Return every condition that the facts show."""
    # By a clock that was set, every replica may seem dead, or alive.
    known = facts.replicas if around.clock is None else ()
    living = [each for each in known if not each.is_silent(facts.now)]
    conditions = [
        *_not_fired(facts.overdue, [each for each in living if each.is_current], around),
        *_vanished(known, living, facts.now),
        *_mixed(living, facts.now - around.drain * 2),
        *_unpolled(facts),
        *map(_dead, facts.letters),
        *(condition for each in facts.watched for condition in _beyond_limits(each, facts.now)),
    ]
    of = JUDGED - ({Code.DEAD_LETTERS} if facts.some_letters else set())
    of -= _OF_REPLICAS if around.clock is not None else set()
    # Two windows of one schedule may be late for different reasons; that of the older one is named.
    return Judgement(list({each.name: each for each in reversed(conditions)}.values()), of)


# --- windows that have not fired ---
# A cause that many schedules share is one condition, so that an outage does not become thousands of
# messages. Any other cause is a condition of its schedule.

_SHARED: Final = frozenset(
    {"no_replica", "task_queue_unserved", "temporal_unreachable", "clock_hold", "undecided"}
)
_PART_OF: Final = {"task_queue_unserved": "task_queue", "undecided": "workflow"}
"""The field that schedules with a shared cause have in common, besides their project."""


@dataclass(frozen=True, slots=True)
class _Late:
    """An overdue window with its cause; ``why`` is the cause and its hint as a clause."""

    window: Overdue
    cause: NotFiredCause
    why: str

    @property
    def group(self) -> tuple[str, str, str, str]:
        """Key of the condition that it shares with others."""
        window = self.window
        if self.cause not in _SHARED:
            return (window.project, "", window.key, self.cause)
        part = getattr(window, _PART_OF[self.cause]) if self.cause in _PART_OF else ""
        return (window.project, part, "", self.cause)


def _not_fired(
    overdue: Sequence[Overdue], living: Sequence[SeenReplica], around: WatchContext
) -> Iterator[Condition]:
    late = [_Late(each, *_cause(each, living, around)) for each in overdue]
    for (project, part, key, cause), same in groupby(
        sorted(late, key=lambda each: (each.group, each.window.fire_time)), lambda each: each.group
    ):
        group = list(same)
        oldest = group[0].window
        keys = list(dict.fromkeys(each.window.key for each in group))
        at = utc_text(oldest.fire_time)
        # No age: each look would change the text.
        text = f"{keys[0]} has not fired: its window of {at} is past its grace"
        if not oldest.known:
            text = f"{keys[0]} has not fired since its window of {at}"
        if len(keys) > 1:
            which = f"{len(keys):,} schedules of project {project} have not fired"
            text = f"{which} ({first_of(keys, _NAMED)}), the oldest window is that of {at}"
        yield Condition(
            name=f"not-fired:{key}" if key else f"not-fired:@{project}/{part}:{cause}",
            code=Code.NOT_FIRED,
            text=f"{text}; {group[0].why}",
            since=oldest.fire_time,
            project=project,
            key=keys[0] if len(keys) == 1 else None,
            cause=cause,
            number=len(keys),
        )


def _cause(
    late: Overdue, living: Sequence[SeenReplica], around: WatchContext
) -> tuple[NotFiredCause, str]:
    """Return the probable cause, and a clause with the cause and its hint."""
    if around.clock is not None:
        return "clock_hold", f"workers start nothing: {around.clock}"
    of_project = [each for each in living if each.project == late.project]
    there = [each for each in of_project if late.external or each.task_queue == late.task_queue]
    if not there:
        return _without_worker(late, of_project)
    if late.error:
        return "plan_failed", f"its plan fails: {late.error}"
    known = late.external or any(late.workflow_type in each.types for each in there)
    if late.status is None and not known:
        text = f"no worker on task queue {late.task_queue} knows {late.workflow}"
        return "workflow_unknown", f"{text}: deploy its code"
    if around.temporal is not None:
        return "temporal_unreachable", f"Temporal cannot be reached: {around.temporal}"
    return _in_progress(late, there)


def _without_worker(late: Overdue, of_project: Sequence[SeenReplica]) -> tuple[NotFiredCause, str]:
    if not of_project:
        text = f"no worker of project {late.project} is alive: start one (`sched worker`)"
        return "no_replica", text
    queues = ", ".join(sorted({each.task_queue for each in of_project}))
    text = f"no worker serves its task queue {late.task_queue}, only {queues}: start one there"
    return "task_queue_unserved", text


def _in_progress(late: Overdue, there: Sequence[SeenReplica]) -> tuple[NotFiredCause, str]:
    if late.status is not None:
        owner = f"replica {late.owner}" if late.owner else "no replica"
        text = f", the last answer was: {late.answer}" if late.answer else ""
        return "no_answer", f"{owner} has it and its start is not confirmed{text}"
    names = first_of(sorted(each.replica for each in there), _NAMED)
    return "undecided", f"{names} could decide it: its log says why it does not"


# --- replicas and task queues ---


def was_replaced(each: SeenReplica, living: Sequence[SeenReplica], now: datetime) -> bool:
    """Return whether a replica is silent for long, and others have taken its place."""
    served = {(other.project, other.task_queue) for other in living}
    silent = each.is_silent(now) and now - each.seen_at > _REPLACED
    return silent and (each.project, each.task_queue) in served


def _vanished(
    replicas: Sequence[SeenReplica],
    living: Sequence[SeenReplica],
    now: datetime,
) -> Iterator[Condition]:
    served = {(each.project, each.task_queue) for each in living}
    for each in replicas:
        replaced = (each.project, each.task_queue) in served
        if not each.is_silent(now) or was_replaced(each, living, now):
            continue
        others = "others continue" if replaced else f"no other serves task queue {each.task_queue}"
        yield Condition(
            name=f"replica:{each.replica}",
            code=Code.REPLICA_VANISHED,
            text=f"replica {each.replica} of project {each.project} has been silent since"
            f" {utc_text(each.seen_at)}, without a sign that it stops; {others}",
            since=each.seen_at,
            project=each.project,
        )


def _mixed(living: Sequence[SeenReplica], before: datetime) -> Iterator[Condition]:
    """Yield the task queues whose workers have had different workflows since before that moment."""
    for each in mixed_queues(living):
        if each.since < before:
            yield Condition(
                name=f"mixed:{each.task_queue}",
                code=Code.TASK_QUEUE_MIXED,
                text=each.text,
                since=each.since,
            )


def _unpolled(facts: Facts) -> Iterator[Condition]:
    for row in facts.queues:
        if row.is_left_alone and row.waiting:
            yield Condition(
                name=f"task-queue:{row.task_queue}",
                code=Code.TASK_QUEUE_UNPOLLED,
                text=no_worker_polls(row),
                since=row.polled_at or row.since,
            )


# --- ends of runs, and limits that a schedule declares ---


def _dead(letters: Letters) -> Condition:
    are = "1 dead letter" if letters.number == 1 else f"{letters.number} dead letters"
    why = f": {letters.error}" if letters.error else ""
    return Condition(
        name=f"dead:{letters.key}",
        code=Code.DEAD_LETTERS,
        text=f"{letters.key} has {are}, the newest is {letters.newest}{why};"
        f" `sched dead show {letters.newest}`",
        since=letters.died_at,
        project=letters.project,
        key=letters.key,
        number=letters.number,
    )


def _beyond_limits(watched: Watched, now: datetime) -> Iterator[Condition]:
    limits, key = watched.alert, watched.key
    if limits.late_after is not None and (since := _late_since(watched, now)) is not None:
        held = f"; it is paused {watched.paused}" if watched.paused else ""
        yield Condition(
            name=f"late:{key}",
            code=Code.FIRED_LATE,
            since=since,
            project=watched.project,
            key=key,
            cause="paused" if watched.paused else None,
            text=f"the window of {utc_text(since)} of {key} is later than its limit of"
            f" {format_duration(limits.late_after)}{held}",
        )
    if watched.stopped_at is not None:
        yield _stopped(watched, watched.stopped_at)
    failed = [each for each in watched.recent if each.status in {*FAILED, "completed"}]
    yield from _in_row(
        watched,
        failed,
        frozenset(FAILED),
        limits.failures_in_row,
        ("failing", Code.FAILURES_IN_ROW, "runs in a row have failed"),
    )
    decided = [
        each
        for each in watched.recent
        if each.status not in {"queued", "claimed"} and each.reason_code not in _NOT_COUNTED
    ]
    yield from _in_row(
        watched,
        decided,
        frozenset({"skipped", "expired"}),
        limits.skipped_in_row,
        ("skipping", Code.SKIPPED_IN_ROW, "windows in a row had no run"),
    )


def _stopped(watched: Watched, since: datetime) -> Condition:
    key = watched.key
    return Condition(
        name=f"paused-after-failures:{key}",
        code=Code.PAUSED_AFTER_FAILURES,
        since=since,
        project=watched.project,
        key=key,
        cause="paused",
        text=f"{key} is paused {watched.paused}; see `sched dead list {key}`, then resume it",
    )


def _late_since(watched: Watched, now: datetime) -> datetime | None:
    """Return the fire time of the window that is later than the limit, if one is."""
    limit = watched.alert.late_after
    if limit is None:
        return None
    if watched.undecided is not None and now - watched.undecided > limit:
        return watched.undecided
    for each in watched.recent:
        if each.status in IN_HAND and now - each.fire_time > limit:
            return each.fire_time
    started = (each for each in watched.recent if each.started_at and each.timing in _TIMED)
    newest = next(started, None)
    if newest and newest.started_at and newest.started_at - newest.fire_time > limit:
        return newest.fire_time
    return None


def _in_row(
    watched: Watched,
    rows: Sequence[Recent],
    bad: Collection[str],
    limit: int | None,
    kind: tuple[str, Code, str],
) -> Iterator[Condition]:
    """Yield a condition if the newest rows are bad, and have at least ``limit`` windows."""
    row: list[Recent] = []
    for each in rows:
        if each.status not in bad:
            break
        row.append(each)
    number = sum(each.windows for each in row)
    if limit is None or number < limit:
        return
    name, code, noun = kind
    last = row[0]
    why = last.error or last.reason_code
    yield Condition(
        name=f"{name}:{watched.key}",
        code=code,
        text=f"{number} {noun} of {watched.key}, its limit is {limit}"
        + (f"; the last: {why}" if why else ""),
        since=row[-1].fire_time,
        project=watched.project,
        key=watched.key,
    )
