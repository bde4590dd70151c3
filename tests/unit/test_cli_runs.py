"""Commands that are told one run, by our id or by Temporal's, without any server."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from engine.cli import runs, temporal
from engine.cli.app import run
from engine.cli.target import Session, Target
from engine.errors import ScheduleNotFound, TemporalUnavailable
from engine.runtime.tracking.replay import Exported
from engine.service import Fire, Status

RUN, RUN_ID = "sched:k:7", "0199c8a2-1111-7000-8000-0123456789ab"


NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def of_status(status: Status) -> Fire:
    return Fire(
        key="k", project="default", series=1, bucket=7, fire_time=NOON, windows=1,
        last_fire_time=NOON, workflow_id=RUN, run_id=RUN_ID, decided_at=NOON,
        status=status, reason=None,
        timing="on_time", started_at=NOON, closed_at=None, lag_ms=None, error=None, replica=None,
        definition_version=1,
    )  # fmt: skip


class Ledger:
    """A service that has one run; each look finds its next status."""

    def __init__(self, *statuses: Status) -> None:
        self.statuses = [*statuses]

    async def fire(self, workflow_id: str) -> Any:
        if workflow_id != RUN:
            return None
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return of_status(status)

    async def schedule(self, key: str) -> None:
        raise ScheduleNotFound(key)

    async def find(self, _: str) -> None:
        return None


@pytest.fixture
def ledger(monkeypatch) -> Ledger:
    made = Ledger("claimed", "started", "started", "completed")

    @asynccontextmanager
    async def opened(_, **__):
        yield made

    async def nowhere(*_):
        raise TemporalUnavailable("it is away")

    monkeypatch.setattr(Session, "target", Target("", "default", None))
    monkeypatch.setattr(temporal, "open_service", opened)
    monkeypatch.setattr("engine.cli.target.open_service", opened)
    monkeypatch.setattr(temporal, "connected", nowhere)
    monkeypatch.setattr(temporal, "_EVERY", 0)
    return made


def test_one_run_is_followed_until_it_has_ended(capsys, ledger):
    assert run(["fires", RUN, "--follow", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["status"] for line in lines] == ["claimed", "started", "completed"]
    assert {line["workflowId"] for line in lines} == {RUN}


def test_a_run_that_has_ended_is_shown_once(capsys, ledger):
    ledger.statuses = ["skipped"]
    assert run(["fires", RUN, "--follow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "skipped"


def test_a_run_that_the_ledger_does_not_have_cannot_be_followed(capsys, ledger):
    assert run(["fires", "sched:k:8", "--follow"]) == 2
    told = capsys.readouterr().err
    assert "SCHEDULE_WINDOW_NOT_FOUND: the ledger has no run sched:k:8; see `sched fires" in told


def test_a_history_is_exported_by_temporals_id_of_its_run(capsys, monkeypatch, ledger, tmp_path):
    asked: list[tuple[str, str | None]] = []

    async def connected(*_):
        return SimpleNamespace()

    async def workflow_of(*_):
        return RUN

    async def export(_, wanted, out):
        asked.extend(wanted)
        return [Exported(RUN, RUN_ID, out / "file", 3)]

    monkeypatch.setattr(temporal, "connected", connected)
    monkeypatch.setattr(temporal, "workflow_of", workflow_of)
    monkeypatch.setattr(runs, "export", export)
    assert run(["history", "export", RUN_ID, "--out", str(tmp_path)]) == 0, capsys.readouterr().err
    assert asked == [(RUN, RUN_ID)]
