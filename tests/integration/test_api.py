"""The REST API: schedules, edits, repeated requests, operators, and how runs are followed."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from engine.api import executions, files, following, problems
from engine.api.access import Caller
from engine.api.requests import request_digest
from engine.cli import api as cli_api
from engine.errors import LedgerUnavailable, ScheduleFileError
from engine.ledger import Evidence, Failure, FailureLink, Outcome, RequestKey, RunCounts, Try
from engine.runtime import Settings
from engine.schedules import load_schedules
from engine.schedules.planner import plan
from engine.service.pages import as_cursor
from tests.ends import record_end
from tests.rest import BILLING, FILE, PATH, SERVING, rest_api
from tests.waiting import eventually


@pytest_asyncio.fixture(loop_scope="module")
async def api(connected):
    async with rest_api(connected) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def client(api):
    async with api.client() as found:
        yield found


async def decided(api, key: str = "filed"):
    """Let the windows of a schedule be decided, as operators' requests do; return its fires."""
    await api.service.pause(key, reason="test")
    await api.service.resume(key)
    return await api.service.fires(key=key)


# --- declarations and edits ---


async def test_a_schedule_is_declared_shown_edited_and_retired(api, client):
    made = await client.post(PATH, json=BILLING)
    assert (made.status_code, made.headers["location"]) == (201, f"{PATH}/billing.nightly")
    shown = await client.get(made.headers["location"])
    assert shown.json() == made.json()
    assert shown.json()["definition"]["cron"] == "0 2 * * *"
    assert (shown.json()["origin"], shown.json()["status"]) == ("api", "pending")
    edited = await client.patch(
        f"{PATH}/billing.nightly", json={"everyMs": 60000, "description": "now by the minute"},
        headers={"If-Match": shown.headers["etag"]},
    )  # fmt: skip
    assert edited.status_code == 200, edited.text
    assert edited.json()["definition"] == {
        "key": "billing.nightly", "workflow": "noop", "everyMs": 60000,
        "description": "now by the minute",
    }  # fmt: skip
    back = await client.patch(
        f"{PATH}/billing.nightly", json={"description": None}, headers={"If-Match": "*"}
    )
    assert "description" not in back.json()["definition"]
    gone = await client.delete(f"{PATH}/billing.nightly")
    assert (gone.status_code, gone.json()["state"]) == (200, "retired")
    assert (await client.delete(f"{PATH}/billing.nightly")).status_code == 200
    verbs = [each.verb for each in await api.service.actions(key="billing.nightly")]
    assert verbs == ["retire", "edit", "edit", "schedule"]


async def test_without_a_project_it_is_that_of_the_api_and_the_answer_says_what_is_waited_for(
    shared_database_url,
):
    async with rest_api(shared_database_url, project="shop") as api, api.client() as client:
        made = await client.post(PATH, json={"key": "plain", "workflow": "noop", "everyMs": 60000})
        assert made.json()["project"] == "shop"
        alone = "no worker lives that starts what comes due of project shop"
        assert made.json()["waiting"].startswith(alone)
        typo = await client.post(PATH, json={"key": "typo", "workflow": "nop", "everyMs": 60000})
        assert "did you mean noop?" in typo.json()["waiting"]
        moved = await client.patch(
            f"{PATH}/plain", json={"project": "default"}, headers={"If-Match": "*"}
        )
        assert (moved.json()["project"], moved.json()["waiting"]) == ("default", None)
        assert (await client.get(f"{PATH}/plain")).json() == moved.json()
        (edit, *_) = await api.service.actions(key="plain")
        was, now = edit.before or {}, edit.after or {}
        assert (was["project"], now["project"]) == ("shop", "default")
        child = {
            "key": "child",
            "workflow": "noop",
            "after": {"schedule": "plain"},
            "project": "default",
        }
        made = await client.post(PATH, json=child)
        assert made.status_code == 201, made.text
        for key, other in (("plain", "child"), ("child", "plain")):
            stays = await client.patch(
                f"{PATH}/{key}", json={"project": "shop"}, headers={"If-Match": "*"}
            )
            assert stays.status_code == 422, stays.text
            assert f"bind it to {other}" in stays.json()["detail"]


async def test_a_schedule_gets_another_key_and_both_show_what_became_of_it(api, client):
    assert (await client.post(PATH, json=BILLING)).status_code == 201
    before = await client.get(f"{PATH}/billing.nightly")
    old = {"If-Match": '"7"'}
    body = {"key": "billing.monthly", "reason": "a better name"}
    refused = await client.post(f"{PATH}/billing.nightly/rename", json=body, headers=old)
    assert refused.status_code == 412
    made = await client.post(
        f"{PATH}/billing.nightly/rename", json=body, headers={"If-Match": before.headers["etag"]}
    )
    assert made.status_code == 200, made.text
    assert made.headers["content-location"] == f"{PATH}/billing.monthly"
    assert (made.json()["formerKeys"], made.json()["successor"]) == (["billing.nightly"], None)
    assert made.json()["nextFireAt"] == before.json()["nextFireAt"]
    old = (await client.get(f"{PATH}/billing.nightly")).json()
    assert (old["state"], old["successor"]) == ("retired", "billing.monthly")
    again = await client.post(f"{PATH}/billing.nightly/rename", json=body)
    assert (again.status_code, again.json()["code"]) == (409, "SCHEDULE_RENAMED")
    filed = await client.post(f"{PATH}/filed/rename", json=body)
    assert filed.json()["code"] == "SCHEDULE_OWNED_BY_FILE"
    back = await client.post(f"{PATH}/billing.monthly/rename", json={"key": "billing.nightly"})
    assert back.json()["formerKeys"] == ["billing.monthly"]
    declared = await client.post(PATH, json={**BILLING, "key": "x", "was": "billing.nightly"})
    assert declared.status_code == 422


async def test_put_creates_or_replaces_and_may_be_repeated(api, client):
    path, body = f"{PATH}/billing.nightly", {"workflow": "noop", "cron": "0 2 * * *"}
    made = await client.put(path, json={**body, "overlapPolicy": "skip", "reason": "release 7"})
    assert (made.status_code, made.headers["location"]) == (201, path)
    assert (made.json()["overlap"], made.headers["etag"]) == ("skip", '"1"')
    same = await asyncio.gather(*(
        client.put(path, json={**body, "overlap": "skip"}) for _ in range(20)
    ))  # fmt: skip
    assert {(each.status_code, each.headers["etag"]) for each in same} == {(200, '"1"')}
    replaced = await client.put(path, json=body, headers={"If-Match": '"1"'})
    assert (replaced.status_code, replaced.headers["etag"]) == (200, '"2"')
    assert replaced.json()["definition"] == {"key": "billing.nightly", **body}
    actions = await api.service.actions(key="billing.nightly")
    assert [(each.verb, each.reason) for each in actions] == [
        ("edit", None), ("schedule", "release 7"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "more", "if_match", "status", "code"),
    [
        ("filed", {}, None, 409, "SCHEDULE_OWNED_BY_FILE"),
        ("mine", {}, '"7"', 412, "SCHEDULE_VERSION_OUTDATED"),
        ("new", {}, "*", 412, "SCHEDULE_VERSION_OUTDATED"),
        ("new", {"key": "other"}, None, 422, "SCHEDULE_FIELD_INVALID"),
        ("new", {"clientRequestId": "one"}, None, 422, "SCHEDULE_FIELD_UNKNOWN"),
        ("mine", {"was": "new"}, None, 422, "SCHEDULE_FIELD_INVALID"),
        ("mine", {"every": "1h"}, None, 422, "SCHEDULE_KIND_INVALID"),
        ("mine", {"project": "other"}, None, 409, "SCHEDULE_KEY_IN_USE"),
    ],
)
async def test_a_put_that_is_refused_changes_nothing(
    api, client, key, more, if_match, status, code
):
    body = {"workflow": "noop", "cron": "0 2 * * *"}
    assert (await client.put(f"{PATH}/mine", json=body)).status_code == 201
    before = await api.stored()
    headers = {"If-Match": if_match} if if_match else {}
    changed = {**body, "overlap": "skip", **more}
    answer = await client.put(f"{PATH}/{key}", json=changed, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert await api.stored() == before


async def test_a_reschedule_that_names_a_key_is_refused_as_such(client):
    await client.post(PATH, json=BILLING)
    answer = await client.post(f"{PATH}/billing.nightly/reschedule", json=BILLING)
    assert (answer.status_code, answer.json()["code"]) == (422, "SCHEDULE_FIELD_INVALID")
    assert answer.json()["detail"].startswith("key is no field here; leave it out")


async def test_a_wrong_value_of_a_request_has_the_code_that_a_file_gets(client):
    answer = await client.post(f"{PATH}/filed/resume", json={"catchUp": {"rate": "5/2"}})
    assert (answer.status_code, answer.json()["code"]) == (422, "SCHEDULE_FIELD_INVALID")
    assert answer.json()["detail"].startswith("catchUp.rate is '5/2'; write a number and")


async def test_a_moment_is_a_text_and_no_number(client):
    for answer in (
        await client.get(PATH, params={"dueBefore": "0.5"}),
        await client.get(f"{PATH}/filed/next", params={"from": "1795312800"}),
        await client.post(f"{PATH}/filed/skip", json={"at": 1795312800}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (400, "SCHEDULE_REQUEST_MALFORMED")


async def test_an_edit_that_changes_nothing_makes_no_new_version(client):
    tag = (await client.post(PATH, json=BILLING)).headers["etag"]
    same = await client.patch(
        f"{PATH}/billing.nightly", json={"cron": "0 2 * * *"}, headers={"If-Match": tag}
    )
    assert (same.status_code, same.headers["etag"]) == (200, tag)


async def test_of_two_editors_one_wins_and_the_other_reads_again(api, client):
    tag = (await client.post(PATH, json=BILLING)).headers["etag"]
    answers = await asyncio.gather(*(
        client.patch(f"{PATH}/billing.nightly", json={"cron": f"{minute} 3 * * *"},
                     headers={"If-Match": tag})
        for minute in range(5)
    ))  # fmt: skip
    assert sorted(each.status_code for each in answers) == [200, 412, 412, 412, 412]
    (won,) = [each for each in answers if each.status_code == 200]
    now = await client.get(f"{PATH}/billing.nightly")
    assert now.headers["etag"] == won.headers["etag"]
    assert now.json()["definition"] == won.json()["definition"]
    for unknown in ('"x"', "1", 'W/"1"', ""):
        stale = await client.patch(f"{PATH}/billing.nightly", json={"cron": "1 1 * * *"},
                                   headers={"If-Match": unknown})  # fmt: skip
        assert (stale.status_code, stale.json()["code"]) == (412, "SCHEDULE_VERSION_OUTDATED")
    late = await client.patch(f"{PATH}/billing.nightly", json={"cron": "1 1 * * *"})
    assert (late.status_code, late.json()["code"]) == (428, "SCHEDULE_VERSION_MISSING")


async def test_the_names_of_the_blueprint_are_taken_beside_ours(client):
    """Seed 004: POST and GET /api/v1/schedules with its nine names."""
    answer = await client.post(PATH, json={
        "name": "Nightly report", "cronExpression": "0 2 * * *", "timezone": "America/New_York",
        "jobType": "noop", "jobPayload": {"format": "pdf"}, "maxRetries": 3,
        "timeoutSeconds": 3600, "overlapPolicy": "cancel_previous", "enabled": True,
    })  # fmt: skip
    assert answer.status_code == 201, answer.text
    assert answer.json()["definition"] == {
        "key": "nightly-report", "description": "Nightly report", "workflow": "noop",
        "input": {"format": "pdf"}, "cron": "0 2 * * *", "timezone": "America/New_York",
        "overlap": "cancel_previous", "retry": {"attempts": 4}, "timeout": {"run": "1h"},
    }  # fmt: skip
    fits = await client.post(PATH, json={"name": "plain", "jobType": "noop", "everyMs": 60000})
    assert fits.json()["key"] == "plain"
    assert "description" not in fits.json()["definition"]
    off = await client.post(PATH, json={"name": "off", "jobType": "noop", "everyMs": 60000,
                                        "enabled": False})  # fmt: skip
    assert off.json()["state"] == "disabled"
    listed = await client.get(PATH, params={"enabled": "true", "jobType": "noop"})
    keys = [each["key"] for each in listed.json()["schedules"]]
    assert keys == ["billing.filed", "filed", "nightly-report", "plain"]
    both = await client.post(PATH, json={"key": "x", "jobType": "noop", "workflow": "noop"})
    assert (both.status_code, both.json()["code"]) == (422, "SCHEDULE_FIELD_INVALID")


async def test_the_answer_says_which_overlap_policy_holds_under_the_names_of_the_blueprint_too(
    client,
):
    names = {"name": "theirs", "cronExpression": "0 2 * * *", "jobType": "noop"}
    ours = {"key": "ours", "workflow": "noop", "cron": "0 2 * * *"}
    limited = {**ours, "key": "limited", "maxConcurrentRuns": 2}
    skips = {**names, "name": "skips", "overlapPolicy": "skip"}
    made = [(await client.post(PATH, json=each)).json() for each in (names, ours, limited, skips)]
    assert [each["overlap"] for each in made] == ["allow", "allow", "queue", "skip"]


async def test_an_answer_warns_of_a_cron_that_was_probably_not_meant(client):
    body = {"workflow": "noop", "cron": "* 5 * * *"}
    (warning,) = (await client.put(f"{PATH}/flood", json=body)).json()["warnings"]
    assert warning.startswith('"* 5 * * *" fires every minute from 05:00 to 05:59 every day')
    assert (await client.get(f"{PATH}/flood")).json()["warnings"] == [warning]
    assert (await client.get(f"{PATH}/filed")).json()["warnings"] == []
    plan = await client.post("/api/v1/plan", json={"schedules": [{"key": "x", **body}]})
    (found,) = plan.json()["warnings"]
    assert (found["key"], found["code"]) == ("x", "SCHEDULE_CRON_DOUBTFUL")


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"every": "1h", "cron": "0 2 * * *"}, "SCHEDULE_KIND_INVALID"),
        ({"at": "2030-01-01T00:00:00Z", "cron": "0 2 * * *"}, "SCHEDULE_KIND_INVALID"),
        ({}, "SCHEDULE_KIND_INVALID"),
        ({"cron": "0 2 * * *", "colour": "red"}, "SCHEDULE_FIELD_UNKNOWN"),
        ({"cron": "61 * * * *"}, "SCHEDULE_CRON_INVALID"),
        ({"key": "Not A Key", "cron": "0 2 * * *"}, "SCHEDULE_KEY_INVALID"),
    ],
)
async def test_a_declaration_is_refused_with_the_code_that_a_file_gets(client, more, code):
    given = {"key": "same", "workflow": "noop", **more}
    answer = await client.post(PATH, json=given)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    with pytest.raises(ScheduleFileError) as refused:
        load_schedules(json.dumps({"schedules": [given]}))
    assert refused.value.problems[0].code == code


async def test_what_is_empty_is_no_name_and_stands_for_nothing_else(api, client):
    await client.post(PATH, json=BILLING)
    before = await api.stored()
    for path, body, status, code in [
        ("filed/trigger", {"requestId": ""}, 422, "SCHEDULE_REQUEST_ID_INVALID"),
        ("billing.nightly/cancel", {"workflowId": ""}, 404, "SCHEDULE_WINDOW_NOT_FOUND"),
        ("", {**BILLING, "key": "b", "clientRequestId": ""}, 422, "SCHEDULE_REQUEST_ID_INVALID"),
        ("", {**BILLING, "key": ""}, 422, "SCHEDULE_KEY_INVALID"),
        ("", {**BILLING, "key": "b", "project": ""}, 422, "SCHEDULE_FIELD_INVALID"),
    ]:
        for headers in ({}, {"Idempotency-Key": "once"}):
            answer = await client.post(f"{PATH}/{path}".rstrip("/"), json=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (status, code), body
    listed = await client.get(f"{PATH}/filed/executions", params={"cursor": ""})
    assert (listed.status_code, listed.json()["code"]) == (400, "SCHEDULE_CURSOR_INVALID")
    assert await api.stored() == before
    assert (await client.get(f"{PATH}/billing.nightly")).json()["state"] == "active"


async def test_a_range_that_ends_before_it_begins_is_refused_as_such(client):
    begin, end = "2026-11-02T00:00:00Z", "2026-11-01T00:00:00Z"
    span = {"from": begin, "to": end}
    for answer in [
        await client.post(f"{PATH}/filed/backfill", json=span),
        await client.post(f"{PATH}/filed/backfill", json={**span, "dryRun": True}),
        await client.get(f"{PATH}/filed/executions", params=span),
    ]:
        assert (answer.status_code, answer.json()["code"]) == (422, "SCHEDULE_FIELD_INVALID")
        assert answer.json()["detail"].startswith("the range begins at 2026-11-02 00:00:00Z and")
    half = {"from": end, "to": begin, "outageFrom": end}
    answer = await client.post("/api/v1/simulate", json={"schedules": []}, params=half)
    assert (answer.status_code, "outageTo" in answer.json()["detail"]) == (422, True)


async def test_words_of_the_blueprint_find_executions(api, client):
    """Seed 004: executions?limit=20&status=failed; pending, dispatched and running are ours too."""
    await client.post(f"{PATH}/filed/trigger", json={})
    again = await client.post(f"{PATH}/filed/trigger", json={"overlap": "queue"})
    assert again.json()["fire"]["status"] == "queued"
    for word, statuses in [("pending", ["queued"]), ("dispatched", ["claimed"]), ("running", []),
                           ("queued", ["queued"]), ("failed", [])]:  # fmt: skip
        found = await client.get(f"{PATH}/filed/executions", params={"limit": 20, "status": word})
        assert [each["status"] for each in found.json()["executions"]] == statuses


async def test_a_schedule_of_a_file_is_read_only_but_for_operators(client):
    for method, path, body in [
        ("PATCH", "filed", {"cron": "0 3 * * *"}), ("DELETE", "filed", None),
        ("POST", "filed/reschedule", {"cron": "0 3 * * *"}),
    ]:  # fmt: skip
        answer = await client.request(method, f"{PATH}/{path}", json=body,
                                      headers={"If-Match": "*"})  # fmt: skip
        assert (answer.status_code, answer.json()["code"]) == (409, "SCHEDULE_OWNED_BY_FILE")
        assert answer.json()["detail"].startswith("filed is declared by a file")
    assert (await client.post(f"{PATH}/filed/pause", json={"reason": "x"})).status_code == 200


async def test_lists_go_page_by_page_while_schedules_come(client):
    for name in "abcde":
        await client.post(PATH, json={"key": f"app.{name}", "workflow": "noop", "everyMs": 60000})
    seen, cursor = [], None
    while True:
        params = {"limit": 2, "keyPrefix": "app.", **({"cursor": cursor} if cursor else {})}
        page = (await client.get(PATH, params=params)).json()
        seen += [each["key"] for each in page["schedules"]]
        cursor = page["nextCursor"]
        if cursor is None:
            break
        await client.post(PATH, json={"key": f"app.a{len(seen)}", "workflow": "noop",
                                      "everyMs": 60000})  # fmt: skip
    assert [key for key in seen if len(key) == 5] == [f"app.{name}" for name in "abcde"]
    wrong = await client.get(PATH, params={"cursor": "bm9uc2Vuc2U"})
    assert (wrong.status_code, wrong.json()["code"]) == (400, "SCHEDULE_CURSOR_INVALID")


# --- webhooks ---


async def test_a_hook_is_declared_changed_and_removed_and_shows_no_secret(api, client):
    address, secret = "https://hooks.example.com/in/s3cr3t", {"secret": "${env:HOOK_SECRET}"}
    made = await client.post(
        "/api/v1/hooks", json={"url": address, **secret, "keys": ["billing.*"], "reason": "new"}
    )
    assert (made.status_code, made.json()["url"]) == (201, "https://hooks.example.com/…")
    place = f"/api/v1/hooks/{made.json()['id']}"
    changed = await client.patch(place, json={"events": ["schedule.failed"], "keys": None})
    assert (changed.json()["events"], changed.json()["keys"]) == (["schedule.failed"], [])
    (hook,) = await api.service.hooks()
    assert (hook.url, hook.secret, hook.origin) == (address, "HOOK_SECRET", "api")
    assert (hook.events, hook.keys) == (("schedule.failed",), ())
    listed = await client.get("/api/v1/hooks")
    assert listed.json()["hooks"] == [changed.json()]
    near = await client.patch(place, json={"events": ["schedule.faild"]})
    assert (near.status_code, near.json()["hint"]) == (422, "did you mean failed?")
    plain = await client.post("/api/v1/hooks", json={"url": address, "secret": "hunter2"})
    assert plain.status_code == 422
    assert (await client.delete(place, params={"reason": "moved"})).status_code == 204
    gone = await client.delete(place)
    assert (gone.status_code, gone.json()["code"]) == (404, "SCHEDULE_HOOK_NOT_FOUND")
    rows = await api.service.actions(key=hook.name)
    assert [(each.verb, each.reason) for each in rows] == [
        ("unhook", "moved"), ("hook", None), ("hook", "new"),
    ]  # fmt: skip
    assert rows[0].by == "api at 127.0.0.1"
    texts = [made.text, changed.text, listed.text, near.text, plain.text, gone.text, repr(rows)]
    assert not any(word in text for text in texts for word in ("s3cr3t", "HOOK_SECRET", "hunter2"))


async def test_a_hook_of_a_file_is_read_only(api, client):
    hooks = "hooks: [{url: 'https://filed.example', secret: '${env:HOOK}'}]"
    await api.service.apply(load_schedules(f"{hooks}\n{FILE}"))
    (hook,) = (await client.get("/api/v1/hooks")).json()["hooks"]
    assert hook["origin"] == "file"
    again = {"url": "https://filed.example", "secret": "${env:OTHER}"}
    for answer in (
        await client.patch(f"/api/v1/hooks/{hook['id']}", json={"events": None}),
        await client.delete(f"/api/v1/hooks/{hook['id']}"),
        await client.post("/api/v1/hooks", json=again),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "SCHEDULE_OWNED_BY_FILE")


# --- repeated requests ---


@pytest.mark.timeout(120)
async def test_100_identical_requests_at_once_make_one_schedule(api, client):
    body = {"workflow": "noop", "everyMs": 60000}

    async def declare() -> Any:
        """Declare it as a client does: what a busy ledger refuses is sent again."""
        while True:
            answer = await client.post(PATH, json=body, headers={"Idempotency-Key": "once"})
            if answer.status_code != 503:
                return answer

    answers = await asyncio.gather(*(declare() for _ in range(100)))
    assert {each.status_code for each in answers} == {201}
    (key,) = {each.json()["key"] for each in answers}
    keys, _ = await api.stored()
    assert keys == ["billing.filed", "filed", key]
    replayed = [each for each in answers if "idempotency-replayed" in each.headers]
    assert len(replayed) >= 99, "one of them made it, if its answer was not lost"
    other = await client.post(PATH, json={**body, "everyMs": 120000},
                              headers={"Idempotency-Key": "once"})  # fmt: skip
    assert (other.status_code, other.json()["code"]) == (422, "SCHEDULE_IDEMPOTENCY_KEY_REUSED")
    elsewhere = await client.post(f"{PATH}/filed/trigger", json={},
                                  headers={"Idempotency-Key": "once"})  # fmt: skip
    assert elsewhere.status_code == 202, "a key is one of its route"


async def test_a_repeated_trigger_starts_one_run_and_a_repeated_backfill_is_one(api, client):
    fires = await decided(api)
    begin = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    end = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    for path, body in [
        ("trigger", {"input": {"a": 1}}),
        ("rerun", {"bucket": fires[0].bucket, "overlap": "queue"}),
        ("backfill", {"from": begin, "to": end}),
    ]:
        if path == "rerun":
            await client.post(f"{PATH}/filed/cancel", json={})
        first, second = [
            await client.post(f"{PATH}/filed/{path}", json=body, headers={"Idempotency-Key": "k"})
            for _ in range(2)
        ]
        assert (first.status_code, second.status_code) == (202, 202), first.text
        assert first.json() == second.json()
        assert second.headers["idempotency-replayed"] == "true"


async def test_the_same_request_with_another_key_is_another_request(api, client):
    triggers = [
        await client.post(f"{PATH}/filed/trigger", json={"overlap": "allow"},
                          headers={"Idempotency-Key": key})
        for key in ("monday", "tuesday")
    ]  # fmt: skip
    assert [each.json()["new"] for each in triggers] == [True, True]
    assert len({each.json()["fire"]["workflowId"] for each in triggers}) == 2

    made = [
        await client.post(PATH, json={"workflow": "noop", "everyMs": 60000},
                          headers={"Idempotency-Key": key})
        for key in ("monday", "tuesday")
    ]  # fmt: skip
    assert len({each.json()["key"] for each in made}) == 2


async def test_a_key_stands_for_path_query_and_body_of_one_caller(client):
    mine = {"Idempotency-Key": "one"}
    for path, status in (
        ("filed/pause", 200), ("filed/pause?x=1", 422), ("billing.filed/pause", 422),
        ("filed/pause", 200),
    ):  # fmt: skip
        answer = await client.post(f"{PATH}/{path}", json={}, headers=mine)
        assert answer.status_code == status, path


def test_a_reader_of_the_ledger_cannot_try_guesses_of_a_body():
    request = httpx_request({
        "type": "http", "method": "POST", "path": PATH, "headers": [], "query_string": b"",
        "server": ("127.0.0.1", 8230),
    })  # fmt: skip
    callers = [Caller("1", "bot", "admin", ("*",), "127.0.0.1", secret) for secret in (b"a", b"b")]
    assert len({request_digest(request, b"{}", each) for each in callers}) == 2


async def test_a_refusal_is_not_kept_so_that_the_same_key_may_try_again(api, client):
    mine = {"Idempotency-Key": "later"}
    body = {"key": "soon", "workflow": "noop", "everyMs": 60000}
    refused = await client.post(PATH, json={**body, "everyMs": 1}, headers=mine)
    assert refused.json()["code"] == "SCHEDULE_INTERVAL_TOO_SHORT"
    assert (await client.post(PATH, json=body, headers=mine)).status_code == 201


async def test_a_request_whose_process_died_is_taken_over_once(api, client, monkeypatch):
    """What may have happened is looked up; what cannot be is not tried a second time."""

    def dies(name: str):
        method = getattr(type(api.service), name)

        async def happens_unseen(self, *arguments, **options):
            await method(self, *arguments, **options)
            raise LedgerUnavailable

        monkeypatch.setattr(type(api.service), name, happens_unseen)
        return lambda: monkeypatch.setattr(type(api.service), name, method)

    mine = {"Idempotency-Key": "lost"}
    body = {"workflow": "noop", "everyMs": 60000}
    revive = dies("schedule_repeat")
    assert (await client.post(PATH, json=body, headers=mine)).status_code == 503
    revive()
    (*_, made), _ = await api.stored()
    await api.service.cancel(made)  # what has happened since is not undone by the repetition
    found = await client.post(PATH, json=body, headers=mine)
    assert found.status_code == 201, found.text
    assert (found.json()["key"], found.json()["state"]) == (made, "retired")
    assert (await api.stored())[0] == ["billing.filed", "filed", made]

    revive = dies("trigger")
    assert (await client.post(f"{PATH}/filed/trigger", json={}, headers=mine)).status_code == 503
    revive()
    again = await client.post(f"{PATH}/filed/trigger", json={}, headers=mine)
    assert (again.status_code, again.json()["new"]) == (202, False)

    revive = dies("backfill")
    hours = [(datetime.now(UTC) - timedelta(hours=n)).isoformat() for n in (3, 2)]
    asked = {"from": hours[0], "to": hours[1]}
    path = f"{PATH}/filed/backfill"
    assert (await client.post(path, json=asked, headers=mine)).status_code == 503
    revive()
    unknown = await client.post(path, json=asked, headers=mine)
    assert (unknown.status_code, unknown.json()["code"]) == (409, "SCHEDULE_REQUEST_UNFINISHED")
    assert len(await api.service.backfills("filed")) == 1


async def test_another_process_waits_for_the_answer_of_the_first(api, client):
    """The row of a request that is in work elsewhere is read until it has an answer."""
    body = json.dumps({}).encode()
    scope = {"type": "http", "method": "POST", "path": f"{PATH}/filed/trigger", "headers": [],
             "query_string": b"", "server": ("127.0.0.1", 8230)}  # fmt: skip
    caller = Caller("loopback", "api", "admin", ("*",), "127.0.0.1")
    digest = request_digest(httpx_request(scope), body, caller)
    of = RequestKey("loopback", f"POST {PATH}/{{key}}/trigger", "elsewhere")
    book = api.ledger.access
    row, mine = await book.claim(of, digest, lease=timedelta(minutes=1), kept=timedelta(days=1))
    assert mine
    waiting = asyncio.create_task(client.post(
        f"{PATH}/filed/trigger", content=body,
        headers={"Idempotency-Key": "elsewhere", "Content-Type": "application/json"},
    ))  # fmt: skip
    await asyncio.wait([waiting], timeout=0.2)
    assert not waiting.done()
    await book.answer(of, row.claim, json.dumps({"status": 202, "headers": {}, "body": '{"a":1}'}))
    answer = await waiting
    assert (answer.status_code, answer.json()) == (202, {"a": 1})


def httpx_request(scope):
    from fastapi import Request

    return Request(scope)


# --- what operators do ---


async def test_every_change_is_in_the_audit_log_with_the_token_and_the_address(api):
    token = await api.token("deploys", "operate", keys=["billing.*"])
    async with api.client(token) as client:
        body = {"reason": "the warehouse moves"}
        answer = await client.post(f"{PATH}/billing.filed/pause", json=body)
        assert answer.json()["paused"]["by"] == "token deploys at 127.0.0.1"
        await client.post(f"{PATH}/billing.filed/resume", json={"catchUp": {"policy": "latest"}})
    (resumed, paused, *_) = await api.service.actions(key="billing.filed")
    assert (paused.verb, paused.by, paused.reason) == (
        "pause", "token deploys at 127.0.0.1", "the warehouse moves",
    )  # fmt: skip
    assert resumed.by == "token deploys at 127.0.0.1"


async def test_windows_are_skipped_and_unskipped_and_shown_as_next(client):
    first, second, third = (await client.get(f"{PATH}/billing.filed/next?limit=3")).json()[
        "fireTimes"
    ]
    skipped = await client.post(f"{PATH}/billing.filed/skip", json={"at": second})
    assert skipped.json()["changed"] is True
    left = (await client.get(f"{PATH}/billing.filed/next?limit=2")).json()["fireTimes"]
    assert left == [first, third]
    await client.post(f"{PATH}/billing.filed/unskip", json={"at": second})
    left = (await client.get(f"{PATH}/billing.filed/next?limit=2")).json()["fireTimes"]
    assert left == [first, second]
    never = await client.post(f"{PATH}/billing.filed/skip", json={"at": "2027-01-01T00:00:01Z"})
    assert (never.status_code, never.json()["code"]) == (404, "SCHEDULE_WINDOW_NOT_FOUND")


async def test_a_cancel_reaches_only_runs_of_its_own_schedule(client):
    run = (await client.post(f"{PATH}/filed/trigger", json={})).json()["fire"]["workflowId"]
    wrong = await client.post(f"{PATH}/billing.filed/cancel", json={"workflowId": run})
    assert wrong.status_code == 404
    done = await client.post(f"{PATH}/filed/cancel", json={"workflowId": run})
    assert done.json()["skipped"] == [run]
    nothing = await client.post(f"{PATH}/filed/cancel", json={})
    assert (nothing.status_code, nothing.json()["code"]) == (409, "SCHEDULE_JOB_NOT_CANCELLABLE")


async def test_a_cancel_retires_an_application_s_schedule_unless_it_goes_on(client):
    given = {"key": "billing.own", "workflow": "noop", "every": "1h"}
    await client.post(PATH, json=given)
    await client.post(f"{PATH}/billing.own/trigger", json={})
    for body, retired in [({"goesOn": True}, False), ({}, True)]:
        done = await client.post(f"{PATH}/billing.own/cancel", json=body)
        assert done.json()["retired"] is retired
        shown = (await client.get(f"{PATH}/billing.own")).json()
        assert (shown["state"] == "retired") is retired


async def test_a_plan_and_a_simulation_change_nothing(api, client):
    before = await api.stored()
    text = "schedules: [{key: filed, workflow: noop, cron: '0 3 * * *'}]"
    yaml = {"Content-Type": "application/yaml"}
    planned = await client.post("/api/v1/plan", content=text, headers=yaml)
    changes = {each["key"]: each["kind"] for each in planned.json()["changes"]}
    assert changes == {"filed": "changed"}
    assert planned.json()["absent"] == ["billing.filed"]
    week = {"from": "2026-12-01T00:00:00Z", "to": "2026-12-08T00:00:00Z"}
    as_json = {"schedules": [each.to_json() for each in load_schedules(text).schedules]}
    simulated = await client.post("/api/v1/simulate", json=as_json, params=week)
    assert (simulated.json()["windows"], simulated.json()["totals"]) == (7, {"on_time": 7})
    long = {"from": "2026-12-01T00:00:00Z", "to": "2027-12-08T00:00:00Z"}
    assert (await client.post("/api/v1/simulate", json=as_json, params=long)).status_code == 422
    wrong = await client.post(
        "/api/v1/plan", content="schedules: [{key: A, workflow: w, everyMs: 60000}]", headers=yaml
    )
    assert wrong.status_code == 422
    assert wrong.json()["problems"][0]["code"] == "SCHEDULE_KEY_INVALID"
    theirs = "calendars: {days: {ics: /etc/passwd}}\n" + text
    outside = await client.post("/api/v1/plan", content=theirs, headers=yaml)
    assert outside.status_code == 422
    assert "root" not in outside.text
    assert await api.stored() == before


async def test_a_simulation_that_would_take_too_much_of_the_processor_is_refused(
    client, monkeypatch
):
    async def asked(body: str, **more):
        span = {"from": "2026-12-01T00:00:00Z", "to": "2026-12-31T00:00:00Z"}
        kind = {"Content-Type": "application/yaml"}
        return await client.post("/api/v1/simulate", content=body, headers=kind, params=span)

    good = "schedules:\n" + "".join(
        f"  - {{key: k{n}, workflow: noop, cron: '{n % 60} * * * *'}}\n" for n in range(20)
    )
    assert (await asked(good)).json()["windows"] == 20 * 30 * 24
    assert (await asked(good + "#" * (1 << 19))).status_code == 413
    watched = set[str]()
    with monkeypatch.context() as patch:
        limit = lambda: watched.add(sys._getframe(1).f_code.co_name)  # noqa: E731
        patch.setattr(files, "_Limit", lambda: limit)
        assert (await asked(good)).status_code == 200
    assert watched >= {"begin", "_simulated", "simulate", "_watched"}, "its reading, count and runs"
    monkeypatch.setattr(files, "_MOST_SECONDS", 0.0)
    for body in (good, "schedules:\n" + "- {}\n" * 50):
        answer = await asked(body)
        assert answer.status_code == 422
        assert "more than 0 s of processor time" in answer.json()["detail"]


async def test_workers_and_readiness_are_shown(shared_database_url):
    async with rest_api(shared_database_url) as api, api.client() as client:
        (worker,) = (await client.get("/api/v1/workers")).json()["workers"]
        assert (worker["replica"], worker["types"]) == ("replica-a", ["noop@1"])
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).status_code == 200
        await api.ledger.close()
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        away = await client.get(PATH)
        assert (away.status_code, away.headers["retry-after"]) == (503, "1")
        assert "127.0.0.1" not in away.json()["detail"], "where the database is stays in the log"


# --- executions ---


async def test_executions_go_page_by_page_with_every_filter(api, client):
    for n in range(7):
        await client.post(f"{PATH}/filed/trigger", json={"requestId": f"r{n}"})
    every = [fire.workflow_id for fire in await api.service.fires(key="filed")]
    seen, cursor = [], None
    while True:
        params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await client.get(f"{PATH}/filed/fires", params=params)).json()
        seen += [each["workflowId"] for each in page["executions"]]
        if (cursor := page["nextCursor"]) is None:
            break
    assert sorted(seen) == sorted(every)
    times = [(await api.service.fire(name)).fire_time for name in seen]
    assert times == sorted(times, reverse=True)
    reasons = (await client.get(f"{PATH}/filed/executions?reason_code=overlap")).json()
    assert {each["reasonCode"] for each in reasons["executions"]} == {"overlap"}
    newer = {"from": times[2].isoformat(), "to": times[0].isoformat(), "limit": 100}
    some = (await client.get(f"{PATH}/filed/executions", params=newer)).json()["executions"]
    assert [each["workflowId"] for each in some] == [
        n for n, at in zip(seen, times, strict=True) if times[2] <= at <= times[0]
    ]


async def test_pages_up_to_the_newest_execution_end(api, client):
    for n in range(3):
        await client.post(f"{PATH}/filed/trigger", json={"requestId": f"r{n}"})
    every = await api.service.fires(key="filed")
    seen, params = [], {"to": every[0].fire_time.isoformat(), "limit": 1}
    for _ in every:
        page = (await client.get(f"{PATH}/filed/executions", params=params)).json()
        seen += [each["workflowId"] for each in page["executions"]]
        params["cursor"] = page["nextCursor"]
    assert (seen, params["cursor"]) == ([fire.workflow_id for fire in every], None)


async def test_a_stream_sends_what_is_there_and_each_change(api, monkeypatch):
    monkeypatch.setattr(executions, "_LOOKS", 0.02)
    first = await api.service.trigger("filed", request_id="one")
    got: list[tuple[str, str]] = []

    async def follow(last: str | None = None) -> None:
        async for name, data, _ in streamed(api.app, f"{PATH}/filed/executions", last):
            assert name == "execution"
            got.append((data["workflowId"].rpartition(":")[2], data["status"]))

    following = asyncio.create_task(follow())
    await eventually(lambda: got == [("one", "claimed")])
    await api.service.cancel(first.fire.workflow_id)
    await eventually(lambda: got[1:] == [("one", "skipped")])
    await api.service.trigger("filed", request_id="two")
    await eventually(lambda: got[2:] == [("two", "claimed")])
    assert len(api.app.state.followers) == 1
    following.cancel()
    await eventually(lambda: not api.app.state.followers)


async def test_a_stream_continues_behind_the_last_event_that_came(api, monkeypatch):
    monkeypatch.setattr(executions, "_LOOKS", 0.02)
    first = (await api.service.trigger("filed", request_id="first", overlap="allow")).fire
    stream = streamed(api.app, f"{PATH}/filed/executions?limit=1")
    _, data, last = await anext(stream)
    assert data["workflowId"] == first.workflow_id
    await stream.aclose()
    asked = [await api.service.trigger("filed", request_id=f"{n}", overlap="allow")
             for n in range(120)]  # fmt: skip
    await api.service.cancel(first.workflow_id)
    got: dict[str, str] = {}
    stream = streamed(api.app, f"{PATH}/filed/executions", last)
    while asked[-1].fire.workflow_id not in got:
        _, data, _ = await anext(stream)
        got[data["workflowId"]] = data["status"]
    await stream.aclose()
    assert [*got] == [first.workflow_id, *(each.fire.workflow_id for each in asked)]
    assert got[first.workflow_id] == "skipped", "it ended while nobody listened"


async def test_a_stream_says_what_it_leaves_out(api, monkeypatch):
    monkeypatch.setattr(executions, "_LOOKS", 0.02)
    for name in ("NEWEST", "PAGE", "PAGES"):
        monkeypatch.setattr(following, name, 1)
    times = [(await api.service.trigger("filed", request_id=f"{n}", overlap="allow")).fire.fire_time
             for n in range(4)]  # fmt: skip
    place = as_cursor(times[0].isoformat(), "")
    stream = streamed(api.app, f"{PATH}/filed/executions", place)
    name, data, _ = await anext(stream)
    assert name == "gap"
    assert [datetime.fromisoformat(data[end]) for end in ("from", "to")] == [times[0], times[2]]
    await stream.aclose()


async def streamed(app, path: str, last: str | None = None):
    """Yield the events of a stream; httpx's own transport would wait for its end."""
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    headers = [(b"host", b"127.0.0.1:8230"), (b"accept", b"text/event-stream")]
    headers += [(b"last-event-id", last.encode())] if last else []
    path, _, asked = path.partition("?")
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
             "query_string": asked.encode(), "headers": headers, "client": ("127.0.0.1", 1),
             "server": ("127.0.0.1", 8230), "scheme": "http", "http_version": "1.1",
             "asgi": {"version": "3.0"}, "root_path": ""}  # fmt: skip

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.start":
            assert message["status"] == 200
        else:
            await chunks.put(message.get("body", b""))

    running = asyncio.create_task(app(scope, receive, send))
    try:
        text = ""
        while True:
            text += (await chunks.get()).decode().replace("\r\n", "\n")
            while "\n\n" in text:
                event, _, text = text.partition("\n\n")
                found = dict(line.split(": ", 1) for line in event.splitlines() if ": " in line)
                if "data" in found:
                    yield found["event"], json.loads(found["data"]), found["id"]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def failed(api, key: str):
    """Let the first window of a schedule run, and fail; return the id of its run."""
    async with api.ledger.transaction() as transaction:
        keys = await transaction.lock_due(SERVING, 100)
        now = await transaction.now()
        plans = [plan(state, now) for state in await transaction.read(keys)]
        claims = await transaction.record(plans, owner="replica-a", lease=timedelta(minutes=1))
    claim = next(each for each in claims if each.key == key)
    started = Outcome(claim.fire_id, claim.token, "started", "on_time", "run", now,
                      first_run_id="run", reported=True)  # fmt: skip
    assert await api.ledger.settle([started]) == 1
    link = FailureLink(type="CardDeclined", message="no luck", step="charge", attempt=3,
                       stack='  File "steps.py", line 7, in charge\n')  # fmt: skip
    counts = RunCounts(
        workflow_id=claim.workflow_id, run_id="run", tries=2, step_retries=2,
        tried=(Try(number=1, run_id="run", started_at=now, error="no luck"),),
    )  # fmt: skip
    failure = Failure((link,), "no luck")
    seen = Evidence(claim.workflow_id, "run", now, "failed", now + timedelta(seconds=1),
                    error="no luck", failure=failure, counts=counts)  # fmt: skip
    await record_end(api.ledger, seen)
    return claim.workflow_id


async def test_dead_letters_have_their_errors_and_tries_and_no_input(api, client):
    """Seed 003: an exception is kept with its stack trace."""
    made = await client.post(PATH, json={"key": "mine", "workflow": "noop", "everyMs": 60000,
                                         "firstFire": "now",
                                         "input": {"card": "4711-0815"}})  # fmt: skip
    assert made.status_code == 201, made.text
    run = await failed(api, "mine")
    (letter,) = (await client.get("/api/v1/dead", params={"key": "mine"})).json()["letters"]
    assert (letter["workflowId"], letter["status"], letter["error"]) == (run, "failed", "no luck")
    assert "failure" not in letter
    assert "4711-0815" not in json.dumps(letter)
    with_more = {"key": "mine", "details": "true"}
    (letter,) = (await client.get("/api/v1/dead", params=with_more)).json()["letters"]
    (error,) = letter["failure"]
    assert (error["type"], error["step"], error["attempt"]) == ("CardDeclined", "charge", 3)
    assert "steps.py" in error["stack"]
    assert [each["error"] for each in letter["tried"]] == ["no luck"]
    listed = await client.get(f"{PATH}/mine/executions", params={"status": "failed"})
    assert [each["tries"] for each in listed.json()["executions"]] == [2]
    assert (await client.get("/api/v1/dead?key=nothing")).status_code == 404


async def test_a_token_of_some_keys_finds_its_letters_behind_any_number_of_others(
    api, client, monkeypatch
):
    monkeypatch.setattr(executions, "_LETTERS_READ", 1)
    runs = []
    for key in ("others.one", "others.two", "some.mine"):  # of one time, so in this order
        made = {"key": key, "workflow": "noop", "everyMs": 60000, "firstFire": "now"}
        assert (await client.post(PATH, json=made)).status_code == 201
        runs.append(await failed(api, key))
    async with api.client(await api.token(keys=["some.*"])) as narrow:
        found = (await narrow.get("/api/v1/dead")).json()["letters"]
        assert [each["workflowId"] for each in found] == runs[2:]


# --- what goes out of an error of the server, and what is logged ---


async def test_an_error_of_the_server_goes_to_the_log_and_a_ledger_that_is_away_once_a_minute(
    api, client, caplog, monkeypatch
):
    monkeypatch.setattr(problems, "_AWAY", problems._Away())

    async def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of table secret_table")

    async def away(*_: Any, **__: Any) -> None:
        raise LedgerUnavailable("no answer from 10.0.0.7:5432")

    monkeypatch.setattr(api.ledger, "schedules", broken)
    answer = await client.get(f"{PATH}/filed")
    assert (answer.status_code, answer.json()["code"]) == (500, "SCHEDULE_ENGINE_ERROR")
    assert "secret_table" not in answer.text
    assert "secret_table" in caplog.text
    caplog.clear()
    monkeypatch.setattr(api.ledger, "schedules", away)
    for _ in range(5):
        answer = await client.get(f"{PATH}/filed")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "10.0.0.7" not in answer.text
    assert caplog.text.count("no answer from 10.0.0.7:5432") == 1


@pytest.mark.parametrize("level", [logging.CRITICAL, logging.INFO])
def test_sched_api_shows_errors_of_its_server_unless_it_writes_a_log(level):
    root, ours = logging.getLogger(), logging.getLogger("sched")
    before = root.level, ours.level
    try:
        root.setLevel(level)
        cli_api._configure_logging(Settings())
        assert ours.isEnabledFor(logging.WARNING), "requests that are refused"
        assert ours.isEnabledFor(logging.INFO) == (level == logging.INFO), "`sched -v` shows more"
    finally:
        root.setLevel(before[0])
        ours.setLevel(before[1])
