"""Every statement of the ledger beside many old rows: none walks through them, however planned.

The server plans a statement anew, or once and for all arguments; and it compares texts by their
bytes, or as a language has them. Which of these it does is not ours to say, so all are tried.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import Any, get_args
from uuid import uuid4

import asyncpg
import pytest

from engine.ledger import Ledger
from engine.ledger.fires import Status
from engine.ledger.postgres.connections import filtered_query, query
from engine.ledger.schedule_rows import SUMMARISED, SUMMARY_ROWS
from engine.schedules.planner.decisions import FAILED
from tests.postgres import Postgres
from tests.servers import run_apart

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROWS = int(os.environ.get("SCHED_PROVE_ROWS", "300_000"))
"""Of one busy schedule, a window a minute up to now; some others have a few each.

Many times what a statement may read; a million in docs/proofs.md."""
LEFT_BEHIND = 10_000
"""Completed windows with values that belong to open ones; over ``MOST_ROWS``."""
WAITING = 5000
"""In the line of one schedule for a place, and of another for what becomes of the busy one."""
MOST_ROWS, MOST_BLOCKS = 8000, 12_000
"""What any one statement may read: of rows, and of pages of 8 KB.

The most is what `wake` reads: of 400 windows that wait for others, some 15 rows each."""

LARGE = {"fires", "actions", "events"}
NAMESPACE = "test"
NOW = datetime.now(UTC).replace(second=0, microsecond=0)
LAST = int(NOW.timestamp()) // 60
"""The bucket of the newest window."""
DAY = timedelta(days=1)
MIDNIGHT = NOW.replace(hour=0, minute=0) - 30 * DAY
A_MINUTE = timedelta(minutes=1)
OLD, MIDDLE = NOW - ROWS * 4 // 5 * A_MINUTE, NOW - ROWS // 2 * A_MINUTE
"""Windows of the busy schedule."""
TOKEN = uuid4()

AWAITS = json.dumps(
    {"rules": [{"parent": "busy", "when": "success", "window": "same"}], "reason": None}
)
FAILING = json.dumps([{"step": "charge", "place": "charge/1", "error": "no money"}])

FIRES = f"""
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time, kind,
                   definition_version, workflow_id, workflow_type, task_queue, status, reason,
                   timing, run_id, started_at, closed_at, token, starting_at, lease_until, owner,
                   dealt_at, followed_at, stop, stop_at, lost_at, overlap, awaits, failing, counted)
SELECT '{NAMESPACE}', 'default', f.key, 1, f.n, to_timestamp(f.n * 60), to_timestamp(f.n * 60),
       f.kind, 1,
       'sched:' || f.key || ':' || f.n || CASE f.kind WHEN 'rerun' THEN ':rerun:1' ELSE '' END,
       'noop@1', 'sched', f.status,
       CASE WHEN f.status = 'skipped' THEN 'overlap: the queue is full: 10 wait' END, 'on_time',
       CASE WHEN f.status IN ('completed', 'failed', 'started') THEN 'run-' || f.n END,
       CASE WHEN f.status IN ('completed', 'failed', 'started') THEN to_timestamp(f.n * 60) END,
       CASE WHEN f.status IN ('completed', 'failed') THEN to_timestamp(f.n * 60 + 1) END,
       CASE f.status WHEN 'starting' THEN '{TOKEN}'::uuid END,
       CASE f.status WHEN 'starting' THEN now() END,
       CASE WHEN f.status IN ('starting', 'claimed') THEN now() + interval '30 s' END,
       CASE f.status WHEN 'starting' THEN 'one' END,
       CASE WHEN f.n % 2000 <> 0 THEN now() END, CASE WHEN f.n % 2000 <> 0 THEN now() END,
       CASE WHEN f.status = 'started' AND f.n % 2 = 0 THEN 'cancel' END,
       CASE WHEN f.status = 'started' AND f.n % 2 = 0 THEN now() END,
       CASE WHEN f.lost THEN now() END, CASE f.key WHEN 'crowded' THEN 'queue' END,
       CASE WHEN f.key = 'waiting' AND f.status = 'queued' THEN '{AWAITS}'::jsonb END,
       -- Older code leaves it when it closes or loses a run.
       CASE WHEN f.n % {ROWS // LEFT_BEHIND} = 0 AND f.status = 'completed' OR f.status = 'started'
            THEN '{FAILING}'::jsonb END,
       CASE WHEN f.status = 'completed'
            THEN CASE WHEN f.n % 1000 = 2 THEN 'wanted' ELSE 'reported' END END
FROM (SELECT 'busy' AS key, n, 'window' AS kind, false AS lost,
             CASE WHEN n > {LAST} - 20 THEN 'starting' WHEN n > {LAST} - 40 THEN 'claimed'
                  WHEN n > {LAST} - 60 THEN 'queued' WHEN n > {LAST} - 80 THEN 'started'
                  WHEN n % 1000 = 0 THEN 'failed' WHEN n % 20 = 1 THEN 'skipped'
                  ELSE 'completed' END AS status
      FROM generate_series({LAST - ROWS}, {LAST}) n
      UNION ALL
      SELECT 'busy', n, 'rerun', false, 'completed'
      FROM generate_series({LAST - 100_000}, {LAST}, 100) n
      UNION ALL
      SELECT 'quiet-' || n % 6, {LAST} - 100_000 - n, 'window', false, 'completed'
      FROM generate_series(0, 17) n
      UNION ALL
      SELECT 'lost', n, 'window', true, 'started' FROM generate_series({LAST - 20_000}, {LAST}) n
      UNION ALL
      SELECT key, n, 'window', false,
             CASE WHEN n = {LAST - WAITING} THEN 'started' ELSE 'queued' END
      FROM (VALUES ('crowded'), ('waiting')) AS k (key),
           generate_series({LAST - WAITING}, {LAST}) n
     ) AS f;
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time, windows,
                   definition_version, workflow_id, task_queue, status, merged_at)
SELECT '{NAMESPACE}', 'default', 'merged', 1, n, to_timestamp(n * 60), to_timestamp(n * 60 + 3540),
       60, 1, 'sched:merged:' || n, 'sched', 'completed', now()
FROM generate_series({LAST} - 1_200_000, {LAST} - 60, 60) n;
"""
KEPT_BY_TRIGGERS = f"""
INSERT INTO line (namespace, key, pending, fire_id)
SELECT namespace, key, awaits IS NOT NULL, id FROM fires WHERE status = 'queued';
INSERT INTO line_changes (namespace, key, waiting, pending)
SELECT namespace, key, count(*) FILTER (WHERE NOT pending), count(*) FILTER (WHERE pending)
FROM line GROUP BY namespace, key;
INSERT INTO line_changes (namespace, key, waiting, pending)
SELECT '{NAMESPACE}', 'crowded', CASE n % 2 WHEN 0 THEN 1 ELSE -1 END, 0
FROM generate_series(1, 200) n;
INSERT INTO data_gaps (namespace, key, fire_time, bucket)
SELECT '{NAMESPACE}', 'busy', to_timestamp(n * 60), n
FROM generate_series({LAST - 100_000}, {LAST}, 100) n;
"""
"""What no trigger writes while the rows come; written as migrations write it of old rows."""
EVENTS = ROWS // 5
HOOK = "hook:default:a.example#1"
KEPT_BY_TRIGGERS += f"""
INSERT INTO bindings (namespace, number, namespace_id, place, current, bound_by)
VALUES ('{NAMESPACE}', 1, 'id', 'here', true, 'me'), ('{NAMESPACE}', 2, 'else', '-', false, 'me');
INSERT INTO event_heads VALUES ('{NAMESPACE}', {EVENTS});
INSERT INTO subscriptions (namespace, name, kind, project, origin, events, keys, types, url,
                           secret, declared_by)
SELECT '{NAMESPACE}', CASE n WHEN 1 THEN '{HOOK}' ELSE 'hook:default:b#' || n END, 'hook',
       'default', 'file', '{{schedule.*}}', '{{}}', '{{arrived}}', 'https://a.example', 'S',
       'test'
FROM generate_series(1, 20) n;
INSERT INTO subscription_positions
SELECT namespace, name, {EVENTS} - 1000 FROM subscriptions;
INSERT INTO events (namespace, project, key, type, event_id, at, position, sequence,
                    definition_version, workflow_id, kind)
SELECT '{NAMESPACE}', 'default', CASE WHEN n % 1000 = 0 THEN 'quiet-1' ELSE 'busy' END,
       CASE n % 2 WHEN 0 THEN 'arrived' ELSE 'completed' END, 'e-' || n,
       now() - interval '1 s' * ({EVENTS} - n), CASE WHEN n <= {EVENTS} THEN n END, n, 1,
       'sched:busy:' || ({LAST - ROWS} + n), 'window'
FROM generate_series(1, {EVENTS} + 50) n;
INSERT INTO event_sequences VALUES ('{NAMESPACE}', 'busy', {EVENTS});
INSERT INTO deliveries (namespace, subscription, position, name, key, attempts, due_at, dead_at)
SELECT '{NAMESPACE}', '{HOOK}', n * 100, 'schedule.arrived',
       CASE n % 9 WHEN 0 THEN 'busy' ELSE 'quiet-1' END, n % 4,
       CASE WHEN n % 5 > 0 THEN now() END, CASE WHEN n % 5 = 0 THEN now() END
FROM generate_series(1, 1000) n;
INSERT INTO deliveries (namespace, subscription, position, name, key, attempts, due_at)
SELECT '{NAMESPACE}', 'hook:default:b#3', {EVENTS} - 3000 + n, 'schedule.arrived', 'busy',
       CASE n WHEN 1 THEN 1 ELSE 0 END, now() + interval '1 hour' * CASE n WHEN 1 THEN 1 ELSE 0 END
FROM generate_series(1, 2000) n;
"""
SCHEDULES = f"""
INSERT INTO schedules (namespace, key, project, definition_version, digest, series, suffixed,
                       effective_from, cursor, next_fire_at, workflow, workflow_type, task_queue,
                       external, grace, enabled, rules)
SELECT '{NAMESPACE}', key, 'default', 1, '', 1, false, to_timestamp({LAST} * 60),
       to_timestamp({LAST} * 60), to_timestamp({LAST} * 60 + 60), 'noop', 'noop@1', 'sched', false,
       '60s', true, '2025a'
FROM (SELECT unnest('{{busy,lost,crowded,waiting,merged}}'::text[]) AS key UNION ALL
      SELECT 'quiet-' || n FROM generate_series(0, 499) n) AS k;
INSERT INTO definitions (namespace, project, key, version, digest, definition, series,
                         effective_from, applied_at, applied_by)
SELECT namespace, project, key, 1, '',
       '{{"key": "a", "workflow": "noop", "everyMs": 60000, "overlap": "queue"}}', 1, now(), now(),
       'test'
FROM schedules;
INSERT INTO actions (namespace, project, key, verb, at, by)
SELECT '{NAMESPACE}', 'default', CASE WHEN n % 10000 = 0 THEN 'quiet-1' ELSE 'busy' END, 'pause',
       to_timestamp({LAST - 100_000} * 60 + n), 'test'
FROM generate_series(1, 100000) n;
INSERT INTO days (namespace, project, key, day, windows, runs, open, completed, failed, cancelled,
                  terminated, timed_out, skipped, expired, rejected, unvouched, measured)
SELECT '{NAMESPACE}', 'default', 'busy', '2000-01-01'::date + n, 1440, 1440,
       CASE n % 100 WHEN 0 THEN 1 ELSE 0 END, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
FROM generate_series(1, 9000) n;
INSERT INTO queues (namespace, queue, project, concurrency, declared_by)
VALUES ('{NAMESPACE}', 'emails', 'default', 10, 'test');
INSERT INTO backfills (namespace, project, key, series, definition_version, first, last, cursor,
                       overlap, include, state, requested_by, requested_at, next_at, windows)
SELECT '{NAMESPACE}', 'default', 'busy', 1, 1, to_timestamp({LAST - ROWS} * 60),
       to_timestamp({LAST - ROWS // 2} * 60), to_timestamp({LAST - ROWS * 3 // 4} * 60), 'queue',
       '{{skipped}}', CASE n WHEN 1 THEN 'laying' ELSE 'done' END, 'test', now(), now(), 500000
FROM generate_series(1, 10000) n;
"""
RUN, QUIET, RULES = f"sched:busy:{LAST - 500}", "quiet-1", "cron1/2025b"
IDS = [ROWS // 2, ROWS // 2 + 1]
STATUSES = get_args(Status)
AGO = datetime.fromtimestamp(0, UTC)

CALLS: dict[str, list[tuple[Any, ...]]] = {
    "act": [("me", ["default"], ["busy"], ["pause"], [None], [None], [None], [None])],
    "announce_replica": [("one", "default", "sched", ["noop@1"], "1", "2025b", DAY, 1)],
    "announce_retention": [(DAY, None, 1, timedelta(seconds=10))],
    "bind": [("id", "here", "me")],
    "bindings": [(1000,)],
    "close_bindings": [(1000, "gone", "may_have_run", "lost")],
    "leave_binding": [("id",)],
    "move_here": [("id", "here", "me")],
    "announce_types": [("sched", ["noop@1"], [None], [None])],
    "announced_input": [("sched", "noop@1")],
    "announced_types": [(["sched"],)],
    "anything_ended": [()],
    "asked_under": [("r-1",)],
    "back_off": [("busy", "error")],
    "backfill_looked_at": [("busy", NOW)],
    "blocked_keys": [(HOOK,)],
    "dead_deliveries": [(50,)],
    "declare_hooks": [
        ("default", "file", "me", ["h"], ["schedule.*"], [""], ["https://a"], ["S"], ["arrived"])
    ],
    "definitions_of": [(["busy"], [1])],
    "delivered": [(HOOK, [100], ["schedule.arrived"])],
    "drop_hooks": [("default", "file", [HOOK])],
    "due_deliveries": [
        (hook, 100, 100, ["busy"]) for hook in (HOOK, "hook:default:b#2", "hook:default:b#3")
    ],
    "end_subscriptions": [()],
    "event_work": [("one", ["listener:x"], begin, "default") for begin in (0, EVENTS)],
    "forget_deliveries": [(DAY,)],
    "forget_events": [(DAY, 0, 1000), (DAY, EVENTS // 2, 1000)],
    "give_back_subscriptions": [("one",)],
    "hint_events": [()],
    "lock_event_head": [()],
    "move_subscription": [(HOOK, "one", 5, "e", A_MINUTE)],
    "newest_events": [(key, None, 50, 5000) for key in (None, "busy", QUIET)],
    "place_events": [(500, 0), (500, EVENTS)],
    "put_back": [(HOOK, [1], ["n"], ["busy"], [1], [A_MINUTE], ["e"])],
    "put_off_deliveries": [(HOOK, [100], ["schedule.arrived"], [2], [A_MINUTE], ["e"])],
    "read_events": [(EVENTS - 100, 100), (0, 100)],
    "redeliver": [("e-100", None), ("e-100", HOOK)],
    "subscribe": [("r", "reader", None, ["schedule.*"], [], A_MINUTE, "me", ["arrived"])],
    "subscriptions": [()],
    "take_subscription": [(HOOK, "one", A_MINUTE)],
    "unsubscribe": [("hook:default:b#2",)],
    "backfills": [("busy", True, 100), ("busy", False, 20), (QUIET, False, 20)],
    "split_range": [("busy", 1, NOW, 2, NOW, [1], [NOW], [1], [NOW], ["id"])],
    "check_data_gaps": [(timedelta(0), 100)],
    "children": [("busy",)],
    "maintenance_of_keys": [("", 100)],
    "maintenance_done": [("busy", NOW, None, None, None)],
    "correct_next": [("busy", NOW)],
    "create_schedule": [
        (RULES, "fresh", "default", 1, "digest", None, 1, False, None, NOW, NOW, NOW, "noop",
         "noop@1", "sched", False, False, A_MINUTE, True, False, NOW.replace(tzinfo=None), "api",
         "fresh", "", "\x1fnoop"),
    ],
    "retention": [()],
    "unread_ends": [(20, "", 1)],
    "unvouched_until": [(None, 1)],
    "unresolved_workflows": [("sched",)],
    "count_reruns": [(RUN, "busy", NOW - 500 * A_MINUTE), ("sched:quiet-1:1", QUIET, NOW)],
    "count_schedules": [("default",)],
    "count_waiting": [("crowded", 1000), ("waiting", 1000), ("busy", 1000), (QUIET, 1000)],
    "count_windows": [("busy", [NOW - 2 * DAY, NOW - DAY], [NOW - DAY, NOW]),
                      (QUIET, [NOW - 900 * DAY], [NOW])],
    "data_gaps": [("busy", 20)],
    "declare_queues": [("default", "me", ["texts"], [1], [None], [None])],
    "declare_starts": [("@noop", "{}", "digest", "noop", RULES, "me")],
    "define_schedules": [],  # writes by primary keys
    "define_versions": [("me", *([each] for each in ("busy", 2, 1, "default", "{}", "", NOW)))],
    "definition": [("busy", 1)],
    "definition_versions": [("busy", 1000)],
    "drift": [("default",)],
    "due_by_share": [
        ("default", ["sched", ""], ["noop@1"], RULES, AGO, ["busy"], "", 1000, 50,
         timedelta(seconds=1)),
    ],
    "drop_queues": [("default", ["emails"])],
    "edge_of_kept": [("busy", 1000), (QUIET, 1000)],
    "ended": [(50, True), (50, False)],
    "external_queues": [()],
    "fire_of_run": [(RUN,)],
    "fires_between": [
        *((*each, None, None, limit) for limit in (5000, 2**31 - 1) for each in (
            ("busy", NOW - DAY, NOW), ("busy", NOW - 2 * DAY, NOW - DAY), (QUIET, OLD, NOW),
            ("merged", NOW - 10 * DAY, NOW), ("busy", MIDDLE, MIDDLE),
            ("busy", NOW + DAY, NOW + DAY),
            ("merged", NOW - 500_000 * A_MINUTE, NOW - 500_000 * A_MINUTE))),
        ("busy", OLD, NOW, MIDDLE, 1, 5000),
    ],
    "keys_of": [("busy",)],
    "known_runs": [([RUN, "no such run"],)],
    "note_second_run": [(RUN, "other")],
    "fold_lines": [(["busy", "crowded", QUIET],)],
    "follow": [(IDS, ["a", "b"], ["noop@1"] * 2, [None] * 2, [None] * 2, ["{}"] * 2, [None] * 2)],
    "followed": [(IDS,)],
    "forget_replicas": [()],
    "forgotten_until": [("busy",)],
    "found_run": [
        ("busy", 1, LAST, NOW, 1, "on_time", NOW, 1, "sched:busy:new", "run", NOW, "run"),
    ],
    "freeze_days": [("busy", [date(2000, 1, 2)])],
    "give_back_slots": [("one",)],
    "give_up": [(IDS, ["user"] * 2, ["user"] * 2)],
    "give_up_deliveries": [("hook:default:b#3", "e", of) for of in (["busy"], None)],
    "give_up_runs": [([RUN], "user", "user")],
    "heads": [("default", ["busy"])],
    "hint": [()],
    "hold_duty": [("tracker", "one", DAY)],
    "hold_slots": [("one", A_MINUTE, True, 1, ["sched/emails"], ["emails"], [1], [5], [False])],
    "in_the_way": [("one", A_MINUTE, True, 100, 1), ("one", A_MINUTE, False, 100, 1)],
    "insert_fires": [
        (
            "one", A_MINUTE, 1, ["default"], ["busy"], [1], [LAST + 1], [NOW + A_MINUTE], [1],
            [NOW + A_MINUTE], [1], [f"sched:busy:{LAST + 1}"], ["noop@1"], ["sched"], ["starting"],
            [None], [None], ["on_time"], [0], [None], [None], [TOKEN], [None], [None],
            [None], ["window"], [None], [None], [None],
        ),
    ],
    "wanted": [("default",)],
    "laying": [()],
    "lift_skips": [(["busy", QUIET],)],
    "list_actions": [(None, 50), ("busy", 50), (QUIET, 50)],
    "living": [(A_MINUTE,)],
    "lock": [(["busy"],)],
    "lock_due": [("default", ["sched", ""], ["noop@1"], RULES, 50, AGO, ["busy"], None, 1),
                 ("default", ["sched", ""], ["noop@1"], RULES, 50, AGO, [], ["busy"], 1)],
    "lock_chosen": [("default", 1, ["busy"], ["sched"], ["\x1fnoop"], [NOW])],
    "lock_edited": [("default", ["busy"])],
    "lock_free": [(["busy"],)],
    "lock_laying": [("default", ["sched", ""], ["noop@1"], RULES, 1)],
    "lock_old": [(IDS,)],
    "lock_outdated": [("default", RULES, "", ["sched", ""], 50)],
    "lock_project": [("default",)],
    "lock_unsent": [(IDS,)],
    "lose": [([RUN], "gone", 1)],
    "make_due": [(["busy", QUIET], True), (["busy", "crowded"], False)],
    "mark_absent": [("default", ["busy"], NOW)],
    "merge_fires": [(IDS[1:], IDS[:1], [2], [NOW], [NOW])],
    "move_to_project": [(["busy"], "default", "default")],
    "move_backfill": [(1, NOW, "laying", None, NOW, NOW, None, 100, "{}", None)],
    "move_cursors": [(RULES, ["busy"], [NOW], [NOW], [LAST], [None], [False], [through],
                      [NOW])
                     for through in (False, True)],
    "newer_rules": [("default", RULES)],
    "next_fires": [("default", "", RULES, 100)],
    "open_days": [("", date(2000, 1, 1), 100)],
    "open_runs": [(500, NOW, AGO, 1), (8, NOW, AGO, 2)],
    "other_rules": [("default", "2025b", DAY)],
    "over_days": [("busy", MIDNIGHT, MIDNIGHT + DAY)],
    "overflow": [("busy",), (QUIET,)],
    "pause": [("busy", NOW, None, "me", None, None)],
    "probe": [("default", ["sched", ""], ["noop@1"], RULES, *each, DAY, 1)
              for each in ((AGO,) * 3, (NOW,) * 3)],
    "promote": [(IDS, [None, None])],
    "put_off_backfills": [("busy", A_MINUTE, None)],
    "ranges_between": [("merged", NOW - 10 * DAY, NOW), ("busy", NOW - 10 * DAY, NOW)],
    "raise_max_bucket": [("busy", LAST)],
    "queue_use": [()],
    "read_queues": [()],
    "read_schedules": [(["busy"], True, 100, 0.5, 1),
                       *(([key], False, 100, 0.5, 1)
                         for key in ("busy", "crowded", "waiting", QUIET))],
    "refill": [
        ("one", A_MINUTE, 1, ["default"], ["busy"], [NOW - 500 * A_MINUTE], [1], [RUN], ["noop@1"],
         ["sched"], ["queued"], ["queue"], [None]),
    ],
    "release": [(IDS,)],
    "release_duty": [("tracker", "one")],
    "remembered_for": [()],
    "remove_fires": [(IDS,)],
    "renew": [(IDS, [TOKEN, TOKEN], A_MINUTE)],
    "request_backfill": [
        ("default", "busy", 1, 1, NOW - DAY, NOW, NOW - DAY, "queue", ["paused"], None, "me", NOW,
         1440),
    ],
    "resolve_dead_letters": [([RUN],)],
    "rename": [("busy", "quiet-1")],
    "retire": [(["busy"], NOW)],
    "revoke": [(["busy"], "paused", False), (["busy"], "retired", True)],
    "run_options": [(RUN,)],
    "save_project": [("default", "digest", 1000, None, "file", "me", [], False)],
    "is_superseded": [("default", "digest")],
    "seen_open": [([RUN], NOW)],
    "note_failures": [
        ([RUN], ["run"], ["no luck"], [None], [None], [None], [1], [0], [None]),
    ],
    "note_failing": [([RUN], [None], [FAILING])],
    "failing_fires": [(None, 50), ("busy", 50), (QUIET, 50)],
    "open_alerts": [(["a"], ["SCHEDULE_NOT_FIRED"], ["text"], [NOW], [None], [None], [None])],
    "resolve_alerts": [(["SCHEDULE_NOT_FIRED"], [])],
    "take_alerts": [(20, A_MINUTE)],
    "add_token": [("id", "bot", "read", ["*"], ["*"], ["*"], [], "digest", "me", None)],
    "has_tokens": [()],
    "revoke_token": [("bot", "me")],
    "token_used": [("id", "127.0.0.1")],
    "claim_request": [("bot", "POST /x", "one", "digest", TOKEN, A_MINUTE, DAY)],
    "request_of": [("bot", "POST /x", "one")],
    "answer_request": [("bot", "POST /x", "one", TOKEN, "{}")],
    "drop_request": [("bot", "POST /x", "one", TOKEN)],
    "release_request": [("bot", "POST /x", "one", TOKEN)],
    "forget_requests": [(DAY,)],
    "begin_session": [("new", "id", "digest")],
    "session": [("digest", DAY)],
    "end_session": [("digest",)],
    "forget_sessions": [(DAY,)],
    "confirm_alert": [("a", None), ("a", NOW)],
    "put_off_alert": [("a", None, "503", A_MINUTE)],
    "open_problems": [()],
    "overdue": [(200,)],
    "watched": [(200,)],
    "failed_in_row": [(None,), (["busy"],)],
    "seen_replicas": [()],
    "held_claims": [(1000,)],
    "due_since": [(1000,)],
    "ledger_clock": [()],
    "letters_by_key": [(500,)],
    "note_polls": [(["golang"], [NOW], [1], ["golang"])],
    "polled_queues": [(A_MINUTE,)],
    "served": [(DAY,)],
    "set_types": [("sched", ["other"], ["other@1"])],
    "set_watermark": [("tracker", "one", NOW)],
    "seal": [("default",)],
    "seal_project": [("default", "key", "me")],
    "standings": [(["busy", QUIET],)],
    "start": [("noop", "7", "digest", "noop", "default", "sched", "me")],
    "started": [("noop", "7")],
    "stopped": [(IDS, ["cancel"] * 2, ["run"] * 2)],
    "rollup_days": [("busy", MIDNIGHT, MIDNIGHT + DAY, [], [], [], [])],
    "take_over": [
        ("default", "one", 50, A_MINUTE, AGO, binding, newest)
        for binding in (1, 2) for newest in (False, True)
    ],
    "take_stops": [("default", 50, A_MINUTE, 1)],
    "totals": [(1000, "default", ["sched", ""])],
    "unservable": [("default", "sched", A_MINUTE, ["noop@1"], DAY, 50, RULES)],
    "unskip": [("busy", 1, NOW)],
    "upcoming": [("default", 50)],
    "wake": [(sorted(FAILED), 200, 0.5, 5000)],
    "wanted_workflows": [("sched",)],
    "window_fire": [("busy", LAST - ROWS // 2, None), ("busy", 1, None), (QUIET, LAST, 1)],
    "wish_stops": [(IDS, ["cancel"] * 2, [None] * 2, [None] * 2)],
    "withdraw": [("one",)],
    "record_evidence": [(1, [RUN], ["run"], [NOW], ["completed"], [NOW], [None], [True],
                         ["run"], [False])],
    "uncounted": [(20, 1)],
    "note_counts": [([RUN], ["run"], [1], [0], [None])],
    "note_retries": [([RUN], [1], [False])],
    "run_details": [(RUN,)],
    "count_fires": [(NOW - A_MINUTE, NOW, None, 500), (NOW - A_MINUTE, NOW, ["busy", "q%"], 500)],
    "run_summaries": [(["busy", "lost", "crowded", "merged", *(f"quiet-{n}" for n in range(46))],
                       SUMMARY_ROWS, SUMMARISED)],
}  # fmt: skip
"""What each statement is given after the namespace."""
ALL_TIME = {"since": AGO, "until": NOW + 100_000 * DAY}
MONTH = {"since": MIDNIGHT, "until": NOW - DAY, "after": "", "limit": 51}


def of_status(status: str) -> dict[str, str]:
    """The filters of a status, as ``FireReads.fires`` gives them."""
    is_open = {"open": status} if status in {"claimed", "starting", "started"} else {}
    return {"status" if status == "completed" else "rare": status, **is_open}


FILTERED: dict[str, list[dict[str, Any]]] = {
    "fires": [
        *({**ALL_TIME, "limit": 50, **key, **status}
          for key in ({}, {"key": "busy"}, {"key": QUIET})
          for status in ({}, *map(of_status, STATUSES))),
        *({**MONTH, "key": key, **status} for key in ("busy", QUIET)
          for status in ({}, *map(of_status, STATUSES))),
        *({"since": NOW - A_MINUTE, "until": NOW, "limit": 50, **key}
          for key in ({}, {"key": "busy"})),
        *({**ALL_TIME, "limit": 50, "reason_code": code, "statuses": [*statuses], **key}
          for code in ("queue_full", "user") for key in ({}, {"key": "busy"}, {"key": QUIET})
          for statuses in (["queued"], STATUSES)),
        *({**MONTH, "reason_code": "queue_full", "statuses": [*STATUSES], "key": key}
          for key in ("busy", QUIET)),
    ],
    "dead_letters": [
        {"limit": 50}, {"limit": 50, "key": "busy"}, {"limit": 50, "key": QUIET},
        {"limit": 1, "workflow_id": RUN}, {"limit": 50, "key": "busy", "bucket": LAST - 1000},
        *({"limit": 50, "at": NOW - DAY, "behind": RUN, **key} for key in ({}, {"key": "busy"})),
    ],
    "old_fires": [
        {"key": "busy", "since": MIDNIGHT, "until": MIDNIGHT + DAY, "limit": 500},
        *({"key": key, "since": MIDNIGHT - ROWS * A_MINUTE, "until": MIDNIGHT, "limit": 500,
           "asked_for": True} for key in ("busy", QUIET)),
    ],
    "tokens": [{}, {"id": "id"}],
    "list_schedules": [
        {}, {"project": "default"}, {"key": "busy"}, {"key": QUIET},
        {"but": "@", "after": "busy", "limit": 51},
        *({"but": "@", "limit": 51, **each} for each in (
            {"workflow": "noop"}, {"workflow": "noop", "version": "noop@1"}, {"topic": "a.b"},
            {"tag": "a"}, {"metadata": '{"ownerId": "ann"}'}, {"request_id": "r"}, {"kind": "at"},
            {"prefix": "quiet"}, {"keys": ["quiet-1%", "b_sy"]}, {"enabled": True},
            {"due_before": NOW}, {"state": "active"}, {"state": "paused", "held": "paused"},
            {"status": "failed", "became": ["failed", "timed_out"], "over": True},
            {"status": "active", "became": ["claimed", "starting", "started"]},
            {"status": "completed", "over": True}, {"origin": "api"},
            {"last_status": "skipped", "became": ["skipped"]},
            {"last_status": "failed", "became": ["failed"]},
        )),
    ],
}  # fmt: skip
"""Filters of the statements whose lines are optional."""
WITHOUT_NAMESPACE: dict[str, list[tuple[Any, ...]]] = {
    "old_snapshots": [(A_MINUTE, 1000)],
    "raise_epoch": [()],
    "doubt": [("system", 1, True)],
    "settle": [(IDS, [TOKEN] * 2, ["started"] * 2, ["on_time"] * 2, ["run"] * 2, [NOW] * 2,
                [None] * 2, [None] * 2, [None] * 2, ["run"] * 2, [None] * 2, [True] * 2)],
}  # fmt: skip


def named() -> set[str]:
    folder = files("engine.ledger.postgres") / "queries"
    return {file.name.removesuffix(".sql") for file in folder.iterdir()}


def test_every_statement_of_the_ledger_is_explained_here():
    assert named() == CALLS.keys() | WITHOUT_NAMESPACE.keys() | FILTERED.keys()


async def fill(url: str) -> None:
    """Write the rows, and the indexes after them, which takes a third of the time."""
    ledger = await Ledger.connect(url, namespace=NAMESPACE)
    await ledger.close()
    connection = await asyncpg.connect(url, server_settings={"search_path": "sched"})
    await connection.execute("SET maintenance_work_mem = '256MB'")
    await connection.execute(SCHEDULES)
    indexes = await connection.fetch(
        "SELECT indexname, indexdef FROM pg_indexes"
        " WHERE tablename = 'fires' AND indexname <> 'fires_pkey'"
    )
    for index in indexes:
        await connection.execute(f"DROP INDEX {index['indexname']}")
    # What checks each row is not asked about rows that are known to be right.
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(FIRES)
    await connection.execute(KEPT_BY_TRIGGERS)
    for index in indexes:
        await connection.execute(index["indexdef"])
    await connection.execute("VACUUM ANALYZE")
    await connection.close()


@pytest.fixture(
    scope="module",
    params=[pytest.param("builtin BUILTIN_LOCALE 'C.UTF-8'", marks=pytest.mark.prove), "libc"],
)
def large(request: pytest.FixtureRequest, postgres: Postgres) -> Iterator[str]:
    """The address of a full ledger whose texts compare by bytes, or as a locale has them."""
    name = f"test_{uuid4().hex}"
    url = postgres.url_of(name)

    async def make() -> None:
        connection = await asyncpg.connect(postgres.url_of("postgres"))
        # Of the locales of libc the planner takes only C for one that compares by bytes.
        await connection.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 STRATEGY FILE_COPY"
            f" LOCALE 'C.utf8' LOCALE_PROVIDER {request.param}"
        )
        await connection.close()
        await fill(url)

    run_apart(make())
    yield url
    run_apart(postgres.drop_database(name))


def literal(value: Any) -> str:
    """A value as SQL has it; its type is the parameter's."""
    return "NULL" if value is None else "'" + plain(value).replace("'", "''") + "'"


def plain(value: Any) -> str:
    if isinstance(value, list):
        inner = (
            "NULL" if each is None else '"' + plain(each).replace('"', '\\"') + '"'
            for each in value
        )
        return "{" + ",".join(inner) + "}"
    if isinstance(value, timedelta):
        return f"{value.total_seconds()} seconds"
    return str(value)


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in nodes(child))]


def read_by(node: dict[str, Any]) -> float:
    """How many rows a node took from a table or an index."""
    if "Relation Name" not in node and "Index Name" not in node:
        return 0
    dropped = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    each = node["Actual Rows"] + sum(node.get(what, 0) for what in dropped)
    return float(each * node["Actual Loops"])


async def faults(
    connection: asyncpg.Connection, name: str, arguments: tuple[Any, ...]
) -> list[str]:
    """Run a statement, take back what it did, and say what it read too much of."""
    transaction = connection.transaction()
    await transaction.start()
    given = ", ".join(map(literal, arguments))
    execute = f"EXECUTE statement ({given})" if arguments else "EXECUTE statement"
    try:
        rows = await connection.fetch(
            f"EXPLAIN (ANALYZE, TIMING OFF, BUFFERS, FORMAT JSON) {execute}"
        )
    except asyncpg.PostgresError as error:
        return [f"{name}: {error}"]
    finally:
        await transaction.rollback()
    plan = json.loads(rows[0][0])[0]["Plan"]
    found = [
        f"reads all of {node['Relation Name']}"
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in LARGE
    ]
    if (read := sum(map(read_by, nodes(plan)))) > MOST_ROWS:
        found.append(f"reads {read:,.0f} rows")
    if (blocks := plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]) > MOST_BLOCKS:
        found.append(f"reads {blocks:,} pages")
    shown = ", ".join(map(plain, arguments))
    return [f"{name} ({shown}): {', '.join(found)}"] if found else []


async def walks(connection: asyncpg.Connection) -> list[str]:
    """What each statement reads too much of."""
    found = []
    calls = {name: [(NAMESPACE, *each) for each in CALLS[name]] for name in CALLS}
    for name, all_arguments in (calls | WITHOUT_NAMESPACE).items():
        await connection.execute(f"PREPARE statement AS {query(name)}")
        for arguments in all_arguments:
            found += await faults(connection, name, arguments)
        await connection.execute("DEALLOCATE statement")
    for name, all_filters in FILTERED.items():
        for given in all_filters:
            text, order = filtered_query(name, frozenset(given))
            await connection.execute(f"PREPARE statement AS {text}")
            arguments = (NAMESPACE, *(given[each] for each in order))
            found += await faults(connection, f"{name} by {[*given]}", arguments)
            await connection.execute("DEALLOCATE statement")
    return found


@pytest.fixture(
    params=[pytest.param("force_custom_plan", marks=pytest.mark.prove), "force_generic_plan"]
)
async def connection(
    large: str, request: pytest.FixtureRequest
) -> AsyncIterator[asyncpg.Connection]:
    """Plans each call anew, or once and for all arguments, as the engine does."""
    opened = await asyncpg.connect(large, server_settings={"search_path": "sched", "jit": "off"})
    await opened.execute(f"SET plan_cache_mode = {request.param}; SET statement_timeout = '20 s'")
    yield opened
    await opened.close()


async def test_no_statement_walks_through_the_ledger(connection: asyncpg.Connection):
    found = await walks(connection)
    assert not found, "\n".join(found)


async def test_nor_where_all_that_the_server_knows_of_is_one_busy_schedule(
    connection: asyncpg.Connection,
):
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SET LOCAL session_replication_role = replica")
    for table in ("fires", "actions", "events"):
        await connection.execute(f"DELETE FROM {table} WHERE key <> 'busy'")
        await connection.execute(f"ANALYZE {table}")
    found = await walks(connection)
    await transaction.rollback()
    assert not found, "\n".join(found)


async def test_open_fires_are_found_in_the_index_that_has_no_others(
    connection: asyncpg.Connection,
):
    """Whatever the statistics are: read otherwise, all that wait cost about as much."""
    for given in (each for each in FILTERED["fires"] if each.get("open") == "claimed"):
        text, order = filtered_query("fires", frozenset(given))
        await connection.execute(f"PREPARE statement AS {text}")
        arguments = ", ".join(map(literal, (NAMESPACE, *(given[each] for each in order))))
        rows = await connection.fetch(f"EXPLAIN EXECUTE statement ({arguments})")
        await connection.execute("DEALLOCATE statement")
        assert any("Index Only Scan using fires_running" in row[0] for row in rows)
