"""The log of a worker: its names and severities, its two lines for a server, and its form."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args
from uuid import uuid4

import asyncpg
import pytest
from temporalio.service import RPCError, RPCStatusCode

from engine.api.problems import shown_problem
from engine.api.requests import Refusals
from engine.cli.up.live_table import LinePrinter
from engine.errors import (
    Code,
    LedgerTimeout,
    LedgerUnavailable,
    SettingsInvalid,
    TemporalUnavailable,
    TokenRequired,
)
from engine.ledger import Claim, Evidence, Failure, FailureLink, Outcome
from engine.ledger.fires import StopOrder
from engine.ledger.postgres import blockers
from engine.ledger.postgres.address import place_of
from engine.runtime import Settings
from engine.runtime.events import (
    Alert,
    AlreadyCancelled,
    Applied,
    Closed,
    Decided,
    Degraded,
    Event,
    EventLog,
    LogEvent,
    Notice,
    Outages,
    Recovered,
    ServerAway,
    ServerBack,
    Settled,
    Stopped,
    entry_of,
    log,
)
from engine.runtime.loop import Loop
from engine.runtime.replica import Replica
from engine.runtime.temporal_client import level_of, server_of
from engine.schedules.planner import Decision
from engine.schedules.planner.planner import FORGOTTEN
from engine.schedules.terms import Reason, Window
from engine.telemetry.logs import FIELDS, JsonLines, LibraryLimit, TextLines, show_service_events

ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 24, 2, tzinfo=UTC)
RUN = "sched:pay:1795312800000"
AWAY = LedgerUnavailable("the ledger's database cannot be reached: refused")
GONE = RPCError("no answer", RPCStatusCode.UNAVAILABLE, b"")


def settled(status: str) -> Settled:
    claim = SimpleNamespace(
        workflow_id=RUN, fire_time=NOW, bucket=1795312800000, workflow_type="pay@1",
        reason_code=None, timing="on_time",
    )  # fmt: skip
    outcome = Outcome(1, uuid4(), cast("Any", status), run_id="r")
    return Settled(cast("Claim", claim), outcome, timedelta(seconds=1.2))


def decided(verdict: str, reason: Reason | None, *, one_shot: bool = False) -> Decided:
    window = Window("pay", 1, 1795312800000, NOW)
    decision = Decision(window, cast("Any", verdict), reason=reason)
    return Decided(decision, RUN, "UTC", one_shot=one_shot)


def closed(how: str, error: str | None = None) -> Closed:
    end = NOW + timedelta(seconds=9)
    failure = Failure((FailureLink(type="Declined", message="no money"),), error) if error else None
    return Closed(Evidence(RUN, "r", NOW, cast("Any", how), end, error, failure=failure))


def skip(code: str) -> Decided:
    return decided("skipped", Reason(cast("Any", code), code))


OLD = Reason("expired", "had passed")
EVENTS: list[tuple[Event, int, LogEvent]] = [
    (settled("started"), logging.INFO, "run_started"),
    (settled("starting"), logging.WARNING, "start_unanswered"),
    (settled("rejected"), logging.WARNING, "start_rejected"),
    (settled("unvouched"), logging.WARNING, "start_unvouched"),
    (decided("queued", None), logging.INFO, "window_queued"),
    (skip("overlap"), logging.WARNING, "window_skipped"),
    (skip("coalesced"), logging.WARNING, "window_skipped"),
    (skip("paused"), logging.INFO, "window_skipped"),
    (skip("user"), logging.INFO, "window_skipped"),
    (skip("excluded"), logging.DEBUG, "window_skipped"),
    (decided("unvouched", FORGOTTEN), logging.WARNING, "window_unvouched"),
    (decided("expired", OLD), logging.WARNING, "window_expired"),
    (decided("expired", OLD, one_shot=True), logging.INFO, "window_expired"),
    (closed("completed"), logging.INFO, "run_completed"),
    (closed("failed", "step charge: no money"), logging.WARNING, "run_failed"),
    (closed("timed_out"), logging.WARNING, "run_timed_out"),
    (closed("cancelled"), logging.INFO, "run_cancelled"),
    (closed("terminated"), logging.WARNING, "run_terminated"),
    (Stopped(StopOrder(1, RUN, None, "cancel", None, "why")), logging.INFO, "stop_requested"),
    (AlreadyCancelled("pay"), logging.INFO, "already_cancelled"),
    (Applied("5 added", good=True), logging.INFO, "file_applied"),
    (Applied("broken", good=False), logging.ERROR, "file_refused"),
    (Notice("well", good=True), logging.INFO, "notice"),
    (Notice("bad", good=False), logging.ERROR, "notice"),
    (Alert(Code.RUN_STUCK, "stuck"), logging.ERROR, "alert"),
    (Degraded("janitor", "a bug"), logging.WARNING, "loop_suspended"),
    (Recovered("janitor"), logging.INFO, "loop_resumed"),
    (ServerAway("ledger", "db:1", "refused"), logging.WARNING, "server_away"),
    (ServerBack("ledger", "db:1", timedelta(seconds=20)), logging.INFO, "server_back"),
]


@pytest.mark.parametrize(("event", "level", "name"), EVENTS)
def test_an_event_has_one_name_and_a_severity_to_filter_by(event, level, name):
    entry = entry_of(event)
    assert entry is not None
    assert (entry.level, entry.event) == (level, name)
    assert set(entry.fields) <= set(FIELDS), "a field that no form of the log shows"


def test_every_name_is_provoked():
    assert {name for *_, name in EVENTS} == set(get_args(LogEvent))


def test_the_names_and_fields_of_the_documentation_are_those_of_the_code():
    page = (ROOT / "docs/logs.md").read_text(encoding="utf-8")
    events, fields = (part.partition("\n## ")[0] for part in (
        page.partition("## Events")[2], page.partition("## Fields")[2],
    ))  # fmt: skip
    assert first_cells(events) == [*get_args(LogEvent), "message", "library"]
    assert set(first_cells(fields)) == set(FIELDS)
    documented = dict(re.findall(r"^\| `(\w+)` \| ([A-Z, ]+) \|", events, re.MULTILINE))
    for _, level, name in EVENTS:
        if level != logging.DEBUG:
            assert logging.getLevelName(level) in documented[name], name


def first_cells(table: str) -> list[str]:
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]


def test_a_failed_run_is_logged_with_its_reason_and_its_step():
    entry = entry_of(closed("failed", "step charge: no money"))
    assert entry is not None
    assert entry.text == f"{RUN} failed: step charge: no money"
    assert entry.fields == {
        "schedule": "pay", "bucket": 1795312800000, "workflow_id": RUN, "run_id": "r",
        "workflow": None, "duration_ms": 9000, "error": "step charge: no money",
        "error_type": "Declined",
    }  # fmt: skip


@pytest.mark.parametrize(
    "event",
    [
        decided("rejected", None),
        Alert(Code.SETTLE_FAILED, "of an outage", quiet=True),
        Notice("resolved", good=True, quiet=True),
        Degraded("poller", "away", "ledger"),
        Recovered("poller", "ledger"),
    ],
)
def test_what_another_line_says_is_neither_logged_nor_printed(event, capsys):
    assert entry_of(event) is None
    LinePrinter()(event)
    assert capsys.readouterr().out == ""


# --- servers ---


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    at = SimpleNamespace(now=100.0)
    monkeypatch.setattr("engine.runtime.events.boottime", lambda: at.now)
    return at


def test_a_server_that_stops_many_loops_is_two_lines_with_the_seconds_until_its_first_answer(
    clock,
):
    told: list[Event] = []
    log = EventLog("r", {"ledger": "db:5432"}, then=told.append)
    for name in ("poller", "presence", "watch"):
        log(Degraded(name, "the ledger's database cannot be reached: x", "ledger", "x"))
        clock.now += 1
    clock.now = 120
    log(Recovered("poller", "ledger"))
    clock.now = 123
    log(Degraded("poller", "y", "ledger", "y"))  # it answered once, and not again
    clock.now = 125
    for name in ("watch", "poller", "presence"):
        log(Recovered(name, "ledger"))
        clock.now += 3
    news = [event for event in told if isinstance(event, ServerAway | ServerBack)]
    assert list(map(str, news)) == [
        "paused: database unreachable at db:5432 (retrying): x",
        "resumed: database answers again at db:5432 after 25 s",
    ]


def test_each_server_is_told_by_itself_and_again_when_it_goes_again(clock):
    outages = Outages({"ledger": "db:1", "temporal": "t:2"})
    assert isinstance(outages.of(Degraded("poller", "x", "ledger")), ServerAway)
    assert isinstance(outages.of(Degraded("starts", "x", "temporal")), ServerAway)
    back = outages.of(Recovered("poller", "ledger"))
    assert isinstance(back, ServerBack)
    assert back.server == "ledger"
    assert isinstance(outages.of(Recovered("starts", "temporal")), ServerBack)
    assert isinstance(outages.of(Degraded("starts", "x", "temporal")), ServerAway)
    assert outages.of(Recovered("poller", "ledger")) is None
    assert outages.of(Degraded("janitor", "a bug")) is None


@pytest.mark.parametrize(
    ("error", "server"),
    [(AWAY, "ledger"), (GONE, "temporal"), (LedgerTimeout("locked"), None), (ValueError(), None)],
)
def test_an_error_names_the_server_that_does_not_answer(error, server):
    assert server_of(error) == server
    assert level_of(error) == (logging.DEBUG if server else logging.WARNING)


@pytest.mark.parametrize("asks", [True, False])
async def test_only_a_loop_that_asks_a_server_at_each_turn_says_that_it_is_away(asks):
    told: list[Event] = []
    outcomes: list[Exception | None] = [AWAY, AWAY, GONE, None, ValueError("a bug"), None]

    async def turn() -> timedelta:
        outcome = outcomes.pop(0)
        if not outcomes:
            loop.stop()
        if outcome:
            raise outcome
        return timedelta(0)

    loop = Loop("one", turn, on_event=told.append, asks=asks)
    await loop.run()
    ours = [(type(e), e.server) for e in told if isinstance(e, Degraded | Recovered)]
    of_servers = [
        (Degraded, "ledger"), (Recovered, "ledger"),
        (Degraded, "temporal"), (Recovered, "temporal"),
    ]  # fmt: skip
    assert ours == [*(of_servers if asks else []), (Degraded, None), (Recovered, None)]


async def test_a_replica_that_begins_waits_for_one_server_after_the_other(monkeypatch):
    monkeypatch.setattr("engine.runtime.replica._PATIENCE", 0)
    told: list[Event] = []
    log = EventLog("r", {"ledger": "db:1", "temporal": "t:2"}, then=told.append)
    replica = Replica(
        cast("Any", None), cast("Any", None), source=None, serving=cast("Any", None),
        settings=Settings(), on_event=log,
    )  # fmt: skip
    outcomes: list[Exception | None] = [AWAY, AWAY, TemporalUnavailable("no server"), None]

    async def begin() -> bool:
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        return True

    assert await replica._patiently("replica", begin)
    news = [(type(each), each.server) for each in told if isinstance(each, ServerAway | ServerBack)]
    assert news == [
        (ServerAway, "ledger"), (ServerBack, "ledger"),
        (ServerAway, "temporal"), (ServerBack, "temporal"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u:p@h:6432/d?x=1", "h:6432"),
        ("postgresql://u:p%40@h/d", "h:5432"),
        ("postgresql:///d", "localhost:5432"),
        ("postgresql:///d?host=/run/postgresql", "/run/postgresql"),
        ("postgresql://u:p@/d?host=h&port=6432&password=p", "h:6432"),
        ("postgresql://u@[::1]/d", "[::1]:5432"),
        ("postgresql://u:p@a,b:6/d", "a:5432,b:6"),
    ],
)
def test_the_place_of_a_database_has_a_port_and_no_password(url, place):
    assert place_of(url) == place


# --- form ---


def record(name: str, level: int, text: str, *values: object, **more: Any) -> logging.LogRecord:
    error = more.pop("error", None)
    info = (type(error), error, None) if error else None
    made = logging.LogRecord(name, level, "", 0, text, values, info)
    vars(made).update(more)
    return made


def test_a_line_of_json_has_the_fields_that_are_known_and_no_other():
    fields = {"event": "run_failed", "schedule": "pay", "run_id": None, "duration_ms": 9}
    line = json.loads(JsonLines().format(record("sched", 30, "%s!", "said", **fields, secret=1)))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "WARNING", "event": "run_failed", "logger": "sched", "message": "said!",
        "schedule": "pay", "duration_ms": 9,
    }  # fmt: skip


def test_a_line_of_a_step_names_its_run_and_an_exception_is_a_field():
    step = {"workflow_id": RUN, "workflow_run_id": "r", "workflow_type": "pay@1"}
    made = record("temporalio.activity", 40, "bad", error=ValueError("x"), temporal_activity=step)
    line = json.loads(JsonLines().format(made))
    assert (line["event"], line["workflow_id"], line["run_id"]) == ("message", RUN, "r")
    assert line["workflow"] == "pay@1"
    assert line["exception"] == "ValueError: x"


def test_no_colours_reach_a_file():
    coloured = record("temporalio", 30, "\x1b[33m WARN\x1b[0m x")
    assert TextLines(plain=True).format(coloured).endswith("WARNING temporalio  WARN x")
    assert json.loads(JsonLines().format(coloured))["message"] == " WARN x"
    assert "\x1b[33m" in TextLines(plain=False).format(coloured)


# --- libraries ---


def core(text: str) -> logging.LogRecord:
    log = SimpleNamespace(message=text, fields={})
    return record("temporalio-sdk_core::x", 30, text, temporal_log=log)


@pytest.mark.parametrize(
    "lost",
    [
        record("asyncpg.pool", 30, "Failed to restore", error=ConnectionRefusedError()),
        record("asyncpg.pool", 30, "x", error=asyncpg.CannotConnectNowError("starting up")),
        core("Error while completing: Status { code: Unavailable, message: x"),
        record("httpx", 20, "HTTP Request: POST https://hooks/SECRET"),
        record("temporalio.worker", 20, "Beginning worker shutdown"),
        record("uvicorn.error", 20, "Application startup complete."),
    ],
)
def test_a_library_does_not_log_what_the_worker_reports_nor_chatter(lost):
    assert not LibraryLimit().filter(lost)


def test_of_each_kind_of_line_of_a_library_one_passes_in_a_minute_with_their_number(monkeypatch):
    at = SimpleNamespace(now=0.0)
    monkeypatch.setattr("engine.telemetry.logs.time.monotonic", lambda: at.now)
    limit = LibraryLimit()
    assert limit.filter(core("task 1 failed"))
    assert not any(limit.filter(core(f"task {n} failed")) for n in range(2, 9))
    assert limit.filter(core("another kind"))
    at.now = 59.9
    assert not limit.filter(core("task 9 failed"))
    at.now = 60
    last = core("task 10 failed")
    assert limit.filter(last)
    assert last.getMessage() == "task 10 failed (and 8 more like it)"


def test_a_traceback_of_a_library_is_its_last_line_and_that_of_a_task_stays():
    known = record("asyncpg.pool", 30, "odd %s", "thing", error=ValueError("x"))
    task = record("asyncio", 40, "Task exception was never retrieved", error=ValueError("x"))
    for each in (known, task):
        assert LibraryLimit().filter(each)
    assert (known.getMessage(), known.exc_info) == ("odd thing: ValueError: x", None)
    assert task.exc_info


def test_the_memory_of_lines_is_bounded_whatever_a_library_says():
    limit = LibraryLimit()
    for number in range(2500):
        kind = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        for _ in range(2):
            limit.filter(core(f"run {kind} failed"))
    assert max(len(limit._passed), len(limit._held)) <= 1000


def test_a_line_of_a_library_that_has_no_text_does_not_fail_where_it_is_logged():
    for name in ("asyncio", "temporalio"):
        wrong = record(name, 30, "%d")
        wrong.args = ("many",)
        assert LibraryLimit().filter(wrong)


@pytest.mark.parametrize("name", ["sched", "temporalio.activity", "temporalio.workflow", "ours"])
def test_the_lines_of_users_and_ours_all_pass_as_they_are(name):
    limit = LibraryLimit()
    for _ in range(3):
        line = record(name, 20, "the same", error=ValueError("x"))
        assert limit.filter(line)
        assert line.exc_info


# --- setting ---


def test_a_form_of_the_log_that_is_none_is_refused():
    assert Settings.from_environment({"SCHED_LOG_FORMAT": "json"}).log_format == "json"
    with pytest.raises(SettingsInvalid) as found:
        Settings.from_environment({"SCHED_LOG_FORMAT": "JSON"})
    assert list(found.value.problems) == ["SCHED_LOG_FORMAT is 'JSON'; write text or json"]


def test_what_only_the_api_knows_is_said_where_no_log_has_it(monkeypatch):
    """Under `sched up`: a repeated cancel, requests that are refused, whose lock is waited for."""
    said: list[tuple[str, str]] = []
    engine = logging.getLogger("sched")
    monkeypatch.setattr(engine, "handlers", [])
    monkeypatch.setattr(engine, "level", logging.NOTSET)
    monkeypatch.setattr(engine, "propagate", True)
    monkeypatch.setattr(logging.getLogger(), "level", logging.CRITICAL)
    engine.manager._clear_cache()  # type: ignore[attr-defined] # levels were cached
    show_service_events(lambda text, style: said.append((text, style)))
    log(AlreadyCancelled("k"))
    log(Alert(Code.RUN_FOUND, "the replica's own listener prints it"))
    Refusals().note("GET /x", "10.0.0.7", TokenRequired("the token is not in force"))
    shown_problem(LedgerUnavailable("127.0.0.1:5432 refuses"))
    blockers.logger.warning("an apply waits for session 7")
    assert said == [
        ("SCHEDULE_JOB_ALREADY_CANCELLED: k was cancelled before", ""),
        ("GET /x of 10.0.0.7 is refused: the token is not in force", "yellow"),
        ("SCHEDULE_LEDGER_UNAVAILABLE: 127.0.0.1:5432 refuses", "red"),
        ("an apply waits for session 7", "yellow"),
    ]
    engine.manager._clear_cache()  # type: ignore[attr-defined] # as above
