"""What an editor is told of each field of a schedule file: its shape, and what it is for."""

from __future__ import annotations

from typing import Final, get_args

from engine.schedules.catch_up import CatchUp
from engine.schedules.chain_fields import MOST_NEEDED
from engine.schedules.cron_clock import Fold, Gap
from engine.schedules.follow import After
from engine.schedules.model import Schedule
from engine.schedules.policy_fields import MOST_CAUGHT_UP, MOST_KEPT, MOST_OPEN, MOST_QUEUED
from engine.schedules.queues import MOST_AT_ONCE
from engine.schedules.schema_shapes import (
    BOUND,
    CALENDAR_NAME,
    CRON,
    DAY_OFF,
    DAYS_OFF_LIST,
    KEY_PATTERN,
    LENGTH,
    LONGEST_MS,
    MOMENT,
    ON,
    SWITCH,
    WRITTEN_OUT,
    ZONE,
    Shape,
    list_of,
    mapping,
    name,
    text,
    words,
)

RATE: Final = text("^[1-9][0-9]*/[0-9a-z]+$", "Write a number and a duration, as 5/1m.", "5/1m")

CATCH_UP: Final[dict[str, tuple[Shape, str]]] = {
    "policy": (
        words(CatchUp, "policy"),
        "After an outage. `latest`: one run, of the newest missed window, stands for all of them.",
    ),
    "window": (LENGTH, "Windows older than this expire instead of being caught up."),
    "max": (
        {"type": "integer", "minimum": 1, "maximum": MOST_CAUGHT_UP},
        "With `all`, the newest so many run and the others expire.",
    ),
    "order": (words(CatchUp, "order"), "With `all`, which of them starts first."),
    "rate": (RATE, "With `all`, how fast they start."),
    "pause": (words(CatchUp, "pause"), "The policy after an operator's pause."),
    "deploy": (words(CatchUp, "deploy"), "The policy after `enabled: false`."),
}
RETENTION: Final[dict[str, tuple[Shape, str]]] = {
    "keep": (
        {"type": "integer", "minimum": 1, "maximum": MOST_KEPT},
        "So many of the newest rows keep their details, whatever their age.",
    ),
    "age": (LENGTH, "How old other rows become with all their details."),
    "failedAge": (LENGTH, "The same of runs that failed."),
    "maxAge": (LENGTH, "No row becomes older."),
}
EXPECTATION: Final[dict[str, tuple[Shape, str]]] = {
    "on": (ON, "The day, by the schedule's own clock."),
    "fires": (
        list_of(
            text(
                "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$",
                'Write times in quotes, as "03:00" or "03:00:30".',
                "03:00",
            )
        ),
        "The local times at which runs start on that day, in their order; [] is never.",
    ),
}

SCHEDULE: Final[dict[str, tuple[Shape, str]]] = {
    "key": (
        text(
            KEY_PATTERN,
            "Use 1 to 200 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit.",
            "nightly-report",
        ),
        "Names the schedule, once in the ledger's namespace, and begins the id of each run.",
    ),
    "workflow": (
        name("daily-report", "daily-report@1"),
        "What is started: a name (its newest version), name@1.2, or any Temporal type.",
    ),
    "input": ({}, "The workflow's argument, any JSON value; without the field there is none."),
    "taskQueue": (name("sched"), "Where the workflow's workers listen."),
    "external": (
        SWITCH,
        "Whether `workflow` is a Temporal type as written, which nobody looks up.",
    ),
    "everyMs": (
        {"type": "integer", "minimum": 1000, "maximum": LONGEST_MS, "examples": [60000, 300000]},
        "An interval in milliseconds, aligned to 1970-01-01T00:00:00Z: 300000 is :00, :05, :10.",
    ),
    "offsetMs": (
        {"type": "integer", "minimum": -LONGEST_MS, "maximum": LONGEST_MS},
        "Shifts an interval, in milliseconds; it may be negative.",
    ),
    "cron": (
        text(
            CRON,
            "Write five fields (minute hour day month weekday), six with seconds first, "
            "or a macro as @daily.",
            "0 2 * * *",
            "*/15 * * * *",
            "0 9 * * MON-FRI",
            "@hourly",
        ),
        "Five fields `minute hour day month weekday`, in quotes; six have leading seconds.",
    ),
    "timezone": (
        text(
            ZONE,
            "Write an IANA name, as America/Sao_Paulo.",
            *("UTC", "America/Sao_Paulo", "America/New_York", "America/Los_Angeles"),
            *("Europe/London", "Europe/Paris", "Asia/Kolkata", "Asia/Tokyo", "Australia/Sydney"),
        ),
        "The IANA zone whose clock the cron, the local moment and the days are meant on.",
    ),
    "at": (
        text(
            f"^{MOMENT}$",
            'Write "2027-01-01T09:00:00Z", or without Z and with a timezone.',
            "2027-01-01T09:00:00Z",
        ),
        "One moment: with an offset, or without and local to `timezone`.",
    ),
    "enabled": (SWITCH, "Whether it fires; this always wins over the ledger."),
    "paused": (SWITCH, "Whether it is paused when first seen; later edits change nothing."),
    "firstFire": (
        words(Schedule, "first_fire"),
        "Whether the window open at first sight is owed; without it, that of an interval is.",
    ),
    "overlap": (
        words(Schedule, "overlap"),
        "What happens to a window while an older run is open; `allow` starts it.",
    ),
    "maxConcurrentRuns": (
        {"type": "integer", "minimum": 1, "maximum": MOST_OPEN},
        "How many runs may be open at once; what becomes of more, `overlap` says: else `queue`.",
    ),
    "maxQueued": (
        {"type": "integer", "minimum": 1, "maximum": MOST_QUEUED},
        "With `overlap: queue`, how many windows may wait; the others are skipped.",
    ),
    "cancelGrace": (
        LENGTH,
        "With `overlap: cancel_previous`, how long a cancelled run has until it is terminated.",
    ),
    "catchUp": (
        {},
        "What happens to windows that were missed for longer than `grace`.",
    ),
    "grace": (LENGTH, "How old a window may be and still start in any case."),
    "start": (BOUND, "It fires from then on, included; a day begins at its midnight."),
    "end": (BOUND, "It fires until then, included; a day counts as the whole of it."),
    "dst": (
        {
            "anyOf": [
                {"const": "standard"},
                mapping(
                    {"gap": {"enum": list(get_args(Gap))}, "fold": {"enum": list(get_args(Fold))}}
                ),
            ]
        },
        "What a fixed-time cron does where its clock skips (gap) or repeats (fold) a time.",
    ),
    "exclude": (
        list_of(
            {
                "anyOf": [
                    *DAY_OFF,
                    {"type": "string", "pattern": CALENDAR_NAME},
                    WRITTEN_OUT,
                ]
            }
        ),
        "Weekdays, days, ranges, stretches and names from `calendars` whose windows are skipped.",
    ),
    "spread": (LENGTH, "Each run starts later than its window by the key's part of this."),
    "onDead": (
        name("alert-team", "alert-team@1"),
        "The workflow that is told of each fire that failed, timed out or was rejected.",
    ),
    "after": (
        mapping(
            {
                "schedule": text(KEY_PATTERN, "Write the key of a schedule.", "nightly-extract"),
                "when": words(After, "when"),
                "window": words(After, "window"),
            },
            "schedule",
        ),
        "The schedule before this one: a window starts once that one's has ended like this.",
    ),
    "needs": (
        {
            **list_of(text(KEY_PATTERN, "Write the key of a schedule.")),
            "minItems": 1,
            "maxItems": MOST_NEEDED,
            "uniqueItems": True,
        },
        "Schedules whose windows of the same fire time have to complete first.",
    ),
    "retention": ({}, "How long its fires keep their details, and how long their rows."),
    "expect": ({}, "When it should fire, for `sched check`."),
    "description": ({"type": "string"}, "Shown above the details of each run."),
    "metadata": (
        {
            "type": "object",
            "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
        },
        "Names with texts, numbers, true, false or null; kept with the definition, for people.",
    ),
}  # fmt: skip

TOP: Final[dict[str, tuple[Shape, str]]] = {
    "$schema": ({"type": "string"}, "Where this schema is, for editors; nothing else reads it."),
    "version": ({"const": 1}, "The format of the file."),
    "project": (
        text(KEY_PATTERN, "Use 1 to 200 of a-z, 0-9, '.', '_' and '-'.", "billing"),
        "The owner of the schedules; without it `default`.",
    ),
    "revision": (
        {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
        "Orders the files of a project: a lower one than the last applied is refused.",
    ),
    "calendars": (
        {
            "type": ["object", "null"],
            "propertyNames": {"pattern": CALENDAR_NAME},
            "additionalProperties": {
                "anyOf": [DAYS_OFF_LIST, mapping({"ics": {"type": "string"}}, "ics")]
            },
        },
        "Days off by name: a list, or {ics: file}; schedules name them in `exclude`.",
    ),
    "defaults": ({"type": ["object", "null"]}, "What schedules share; their own fields win."),
    "queues": (
        {
            "type": ["object", "null"],
            "propertyNames": {"pattern": KEY_PATTERN},
            "additionalProperties": {
                **mapping(
                    {
                        "concurrency": {"type": "integer", "minimum": 1, "maximum": MOST_AT_ONCE},
                        "rate": RATE,
                    }
                ),
                "minProperties": 1,
            },
        },
        "How many steps run at once, and how fast they begin, by the queue they name.",
    ),
    "schedules": ({"type": "array", "minItems": 1}, "The schedules."),
}
