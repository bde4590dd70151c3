"""Schedules as users read them: rows, the words for their state, filters and summaries.

All datetimes are timezone-aware and in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from engine.ledger.fires import Died, Status
from engine.schedules import STARTS, TICK, Schedule
from engine.schedules.planner import TIME_RULES, Origin, Pause

# --- states ---
# Two vocabularies: ours for operators, and five words for applications. For rows and filters alike,
# the functions ``schedule_state`` and ``job_status`` of 0001_ledger.sql decide on them.

State = Literal["active", "paused", "disabled", "ended", "retired"]
"""The state of a schedule: its hold, ``active`` with windows to come, or ``ended``."""

JobStatus = Literal["pending", "active", "completed", "failed", "cancelled"]
"""The state of a schedule in the words of job queues; docs/one-shots.md has the table."""

_UNDER_WAY: Final = ("claimed", "starting", "started")
_FAILED: Final = ("expired", "failed", "rejected", "timed_out", "unvouched")


# --- rows ---


@dataclass(slots=True)
class ScheduleRow:
    """A schedule as shown to users; ``schedule`` is None if this version cannot read it.

    Not frozen, because that would triple the time that the rows of a page take to be made.

    Attributes:
        definition_version: the newest definition's, in force since ``effective_from``.
        defined_at: when that was written. The first window of an interval that is new lies before,
            and so does ``effective_from`` then.
        status: the state in the words of job queues.
        next_fire_at: when it is planned next; see ``next_start_at``.
        started: with a ``limit``, how many windows have started or may still start; None without.
        last_fire_at, last_status: of its newest fire, not counting windows skipped ahead.
        error: why it backs off, if it does.
        pause: its pause, if it is paused.
        origin: where it is declared: in a file, or by an application.
        request_id: the id under which an application asked for it, if it gave one.
        skips: skipped windows to come, with their reasons.
        former: the keys that it had before it was renamed, the oldest first.
        successor: the key that it has now, if this is a former one; its state is ``retired`` then.
    """

    key: str
    project: str
    workflow: str
    schedule: Schedule | None
    state: State
    status: JobStatus
    next_fire_at: datetime | None
    last_fire_at: datetime | None
    last_status: Status | None
    workflow_type: str | None
    definition_version: int
    series: int
    effective_from: datetime
    error: str | None
    rules: str = TIME_RULES
    pause: Pause | None = None
    origin: Origin = "file"
    skips: Mapping[datetime, str] = field(default_factory=dict)
    request_id: str | None = None
    defined_at: datetime | None = None
    started: int | None = None
    former: tuple[str, ...] = ()
    successor: str | None = None

    @property
    def of_starts(self) -> bool:
        """Whether it stands for the starts of a workflow by applications, see ``Start``."""
        return self.key.startswith(STARTS)

    @property
    def problem(self) -> str | None:
        """Why it does not fire as declared; None if it does."""
        needs = self.schedule is None or not self.schedule.starts_nothing
        if self.error is None and self.workflow_type is None and self.state == "active" and needs:
            return f"no worker has announced {self.workflow} yet"
        return self.error

    @property
    def tzdata(self) -> str:
        """Version of the zone rules by which its windows were computed last."""
        return self.rules.rpartition("/")[2]

    @property
    def in_force_since(self) -> datetime:
        """When its newest definition came into force, at the earliest when it was written."""
        return max(self.effective_from, self.defined_at or self.effective_from)

    @property
    def next_start_at(self) -> datetime | None:
        """The next window that starts; excluded and skipped windows are planned but never start."""
        if self.next_fire_at is None or self.schedule is None:
            return self.next_fire_at
        return self.schedule.first_start(self.next_fire_at, but=self.skips)

    @property
    def limit_left(self) -> int | None:
        """How many windows its ``limit`` still lets start; None without a limit."""
        if self.started is None or self.schedule is None:
            return None
        return max((self.schedule.limit or 0) - self.started, 0)

    @property
    def last_start_at(self) -> datetime | None:
        """The last window that its ``limit`` lets start; None if no limit ends it."""
        room = self.limit_left
        if room is None or self.next_fire_at is None or self.schedule is None:
            return None
        return self.schedule.last_start(self.next_fire_at - TICK, room, but=self.skips)

    def starts(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Return the windows with ``after < t <= until`` that start a run as it stands now.

        Excluded and skipped windows never start, nor does one after the last that a limit allows.
        """
        if self.schedule is None:
            return iter(())
        last = self.last_start_at
        fires = self.schedule.starts(after, until if last is None else min(until, last))
        return (at for at in fires if at not in self.skips)

    @property
    def in_shadow(self) -> bool:
        """Whether its next window is one of shadow mode, which is recorded and never starts."""
        if self.state != "active" or self.schedule is None or self.next_fire_at is None:
            return False
        end = self.schedule.shadow_end
        return end is not None and self.next_fire_at < end


SUMMARISED: Final = 20
"""The number of last runs in a summary."""
SUMMARY_ROWS: Final = 60
"""The newest rows of a key in which these runs are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Summary of the last runs of a schedule, as far as they ended by themselves.

    Attributes:
        runs: their number, at most ``SUMMARISED``; a run that was cancelled or terminated is none.
        completed: how many of them were completed.
        median_duration_ms: of the completed ones.
        last_failure_at: when a run of the schedule failed last, or a window was rejected.
        last_failure: what became of it; ``error``: why.
        recent: what became of its last windows that have opened, the newest first.
    """

    key: str
    runs: int = 0
    completed: int = 0
    median_duration_ms: int | None = None
    last_failure_at: datetime | None = None
    last_failure: Died | None = None
    error: str | None = None
    recent: tuple[Status, ...] = ()

    @property
    def success_rate(self) -> float | None:
        """The part of the runs that was completed, from 0 to 1; None without any run."""
        return self.completed / self.runs if self.runs else None


@dataclass(frozen=True, slots=True)
class NextFire:
    """The next window of a schedule, and the schedule's time zone."""

    key: str
    fire_time: datetime
    timezone: str


# --- filters ---

ScheduleKind = Literal["at", "one_shot", "cron", "interval"]
"""Kinds of schedules in a filter; ``one_shot`` is another word for ``at``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFilter:
    """Filters of a list of schedules, all of which have to match; None matches everything.

    Attributes:
        project: the owner.
        origin: where it is declared.
        kind: what makes it fire.
        state: in our words.
        status: in the words of job queues.
        last_status: what became of its newest fire.
        workflow: its workflow: ``name`` with every version, or ``name@1``.
        topic: its topic.
        tag: one of its tags.
        owner_id: the ``ownerId`` of its metadata.
        tenant_id: the ``tenantId`` of its metadata.
        correlation_id: the ``correlationId`` of its metadata.
        request_id: the id under which an application asked for it.
        metadata: what its metadata have at least, compared as JSON.
        key_prefix: how its key begins.
        keys: patterns of which one stands for its whole key, with ``*`` for any text and ``?`` for
            one character.
        enabled: whether it is in force and its definition enables it.
        due_before: it is planned next before this moment.
    """

    project: str | None = None
    origin: Origin | None = None
    kind: ScheduleKind | None = None
    state: State | None = None
    status: JobStatus | None = None
    last_status: Status | None = None
    workflow: str | None = None
    topic: str | None = None
    tag: str | None = None
    owner_id: str | None = None
    tenant_id: str | None = None
    correlation_id: str | None = None
    request_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    key_prefix: str | None = None
    keys: tuple[str, ...] = ()
    enabled: bool | None = None
    due_before: datetime | None = None

    @property
    def all_metadata(self) -> dict[str, Any]:
        """All that the metadata have to contain."""
        identities = {
            "ownerId": self.owner_id,
            "tenantId": self.tenant_id,
            "correlationId": self.correlation_id,
        }
        named = {name: value for name, value in identities.items() if value is not None}
        return {**self.metadata, **named}

    @property
    def declared_kind(self) -> str | None:
        """The field of a file that makes a schedule of this kind."""
        fields = {"at": "at", "one_shot": "at", "cron": "cron", "interval": "everyMs"}
        return fields[self.kind] if self.kind else None

    def given(self) -> dict[str, Any]:
        """Return the values by the names of ``list_schedules.sql``, those that filter alone."""
        workflow = self.workflow
        found = {
            "project": self.project,
            "origin": self.origin,
            "kind": self.declared_kind,
            "state": self.state,
            "status": self.status,
            "last_status": self.last_status,
            "workflow": workflow and workflow.partition("@")[0],
            "version": workflow if workflow and "@" in workflow else None,
            "topic": self.topic,
            "tag": self.tag,
            "request_id": self.request_id,
            "metadata": json.dumps(self.all_metadata) if self.all_metadata else None,
            "prefix": self.key_prefix,
            "due_before": self.due_before,
            "keys": as_like(self.keys),
            "enabled": self.enabled,
            **self._implied(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _implied(self) -> dict[str, Any]:
        """Return what follows from the states and statuses, and is cheaper to look for."""
        became: tuple[str, ...] = ()
        if self.last_status is not None and self.last_status != "completed":
            became = (self.last_status,)
        elif self.status == "failed":
            became = _FAILED
        elif self.status == "active":
            became = _UNDER_WAY
        ended = self.state == "ended" or self.status in {"completed", "failed", "cancelled"}
        return {
            "became": sorted(became) or None,
            "held": self.state if self.state in {"paused", "disabled", "retired"} else None,
            "over": ended or None,
        }


def as_like(patterns: Iterable[str]) -> list[str] | None:
    """Return patterns of keys as those of LIKE; None if there are none."""
    signs = str.maketrans({"\\": r"\\", "%": r"\%", "_": r"\_", "*": "%", "?": "_"})
    return [each.translate(signs) for each in patterns] or None
