"""Schedule files for tests, and how their problems are looked at."""

from __future__ import annotations

from textwrap import dedent

import pytest

from engine.errors import Problem, ScheduleFileError
from engine.schedules import ScheduleFile, load_schedules


def load(text: str, name="schedules.yaml") -> ScheduleFile:
    return load_schedules(dedent(text), name)


def problems(text: str | bytes, name="schedules.yaml") -> tuple[Problem, ...]:
    with pytest.raises(ScheduleFileError) as caught:
        load_schedules(dedent(text) if isinstance(text, str) else text, name)
    found = caught.value.problems
    assert list(found) == sorted(found, key=lambda problem: (problem.line, problem.column))
    for problem in found:
        assert problem.value is None or len(problem.value) <= 60
        for jargon in ("Input should", "validation", "pydantic", "dict", "NoneType", "scanning"):
            assert jargon not in problem.message
    return found


def only(text: str | bytes, name="schedules.yaml") -> Problem:
    found = problems(text, name)
    assert len(found) == 1, "\n".join(problem.located(name) for problem in found)
    return found[0]


def entry(line: str) -> str:
    return f"schedules:\n  - {{key: a, workflow: b, {line}}}\n"


GOOD = """\
version: 1
defaults: {timezone: UTC, taskQueue: sched, overlap: allow, catchUp: {policy: latest, window: 24h}}
schedules:
  - {key: nightly-report, workflow: daily-report, cron: "0 2 * * *", timezone: America/Sao_Paulo,
     input: {format: html}}
  - {key: cache-sync, workflow: cache-sync, everyMs: 300000}
"""

TEN_MISTAKES = """\
version: 1
defaults: {timezone: America/Sao_Paulo}
schedules:
  - key: Nightly Report
    workflow: daily-report
    cron: "0 2 * * *"
  - key: soon
    workflow: cache-sync
    everyMs: soon
  - key: fast
    workflow: cache-sync
    everyMs: 10
  - key: misspelt
    workflow: cache-sync
    every_ms: 5000
  - key: nothing-to-do
    cron: "0 2 * * *"
  - {key: both, workflow: cache-sync, everyMs: 60000, cron: "0 2 * * *"}
  - key: bad-cron
    workflow: daily-report@1
    cron: "61 2 * * *"
  - key: nowhere
    workflow: daily-report
    cron: "0 2 * * *"
    timezone: America/Sao_Paolo
  - key: soon
    workflow: cache-sync
    everyMs: 60000
  - key: unquoted
    workflow: cache-sync
    cron: */5 * * * *
"""
