"""Who may use the API: every route, every kind of token, and what comes from elsewhere."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import asyncpg
import httpx
import pytest
import pytest_asyncio
from fastapi import APIRouter

from engine.api import access
from engine.api.access import OPEN_ROUTES, PAGE_ROUTES, ROUTES
from engine.api.app import create_app, listening, require_tokens, serving
from engine.api.browser import PageRoute
from engine.api.requests import ApiOptions, GuardedRoute, Refusals
from engine.errors import (
    RateExceeded,
    SettingsInvalid,
    TokenInvalid,
    TokenNameInUse,
    TokenNotFound,
    TokenRequired,
)
from engine.schedules import Rate
from engine.service import ScheduleService
from engine.service.pages import as_cursor
from tests.rest import BILLING, PATH, rest_api

SOON = "2030-01-01T00:00:00Z"
BODIES = {
    "POST /api/v1/schedules": {**BILLING, "key": "billing.new"},
    "PUT /api/v1/schedules/{key}": {"workflow": "noop", "cron": "0 2 * * *"},
    "PATCH /api/v1/schedules/{key}": {"description": "x"},
    "POST /api/v1/schedules/{key}/reschedule": {"cron": "0 3 * * *"},
    "POST /api/v1/schedules/{key}/rename": {"key": "billing.renamed"},
    "POST /api/v1/schedules/{key}/skip": {"at": SOON},
    "POST /api/v1/schedules/{key}/unskip": {"at": SOON},
    "POST /api/v1/schedules/{key}/backfill": {"from": "2020-01-01T00:00:00Z", "to": SOON},
    "POST /api/v1/schedules/{key}/rerun": {"bucket": 1},
    "POST /api/v1/hooks": {"url": "ftp://nowhere", "secret": "x"},
    "POST /api/v1/plan": {"schedules": []},
    "POST /api/v1/simulate": {"schedules": []},
}
BELOW = {"operate": ["read"], "admin": ["read", "operate"], "read": []}


@pytest_asyncio.fixture(loop_scope="module")
async def api(connected):
    async with rest_api(connected) as found:
        yield found


async def ask(
    client: httpx.AsyncClient, route: str, token: str | None, key: str = "billing.filed"
) -> httpx.Response:
    """Send a request that the route would accept from the right caller."""
    method, path = route.split(" ")
    params = {"from": "2026-12-01T00:00:00Z", "to": "2026-12-02T00:00:00Z"}
    body = BODIES.get(route, {}) if method in {"POST", "PUT", "PATCH"} else None
    return await client.request(
        method, path.format(key=key, hook="default.00000000", workflow_id="a:b"), json=body,
        headers={"If-Match": "*", **({"Authorization": f"Bearer {token}"} if token else {})},
        params=params if path.endswith("simulate") else {},
    )  # fmt: skip


# --- routes and tokens ---


async def test_every_route_is_in_the_table_and_the_table_has_no_other(api_routes):
    assert api_routes == ROUTES.keys() | PAGE_ROUTES.keys() | OPEN_ROUTES


@pytest_asyncio.fixture(loop_scope="module")
async def api_routes(api) -> set[str]:
    return {
        f"{method} {route.path_format}"
        for route in every_route(api.app.routes)
        for method in route.methods
    }


def every_route(routes):
    for route in routes:
        if isinstance(route, GuardedRoute | PageRoute):
            yield route
        else:
            inner = getattr(route, "routes", None) or getattr(
                getattr(route, "original_router", None), "routes", None
            )
            assert inner is not None, f"{route} is not guarded"
            yield from every_route(inner)


@pytest.mark.parametrize("kind", [GuardedRoute, PageRoute])
def test_a_route_that_is_not_in_the_table_cannot_be_made(kind):
    router = APIRouter(route_class=kind)
    with pytest.raises(KeyError, match="/api/v1/forgotten"):
        router.add_api_route("/api/v1/forgotten", lambda: None)


async def test_every_route_refuses_who_has_no_token_or_the_wrong_one(api):
    whole = await api.token("whole")
    await api.service.create_token("late", scope="admin", expires=timedelta(milliseconds=1))
    expired = (await api.service.create_token(
        "later", scope="admin", expires=timedelta(milliseconds=1)
    )).secret  # fmt: skip
    revoked = await api.token("revoked")
    await api.service.revoke_token("revoked")
    tokens = {scope: await api.token(scope, scope) for scope in ("read", "operate")}
    theirs = await api.token("theirs", keys=["shipping.*", "billing"])
    before = await api.stored()
    async with api.client() as client:
        for route, rule in ROUTES.items():
            for bad in (None, expired, revoked, f"{whole[:-2]}__", "sched_x_y"):
                answer = await ask(client, route, bad)
                found = answer.status_code, answer.json()["code"]
                assert found == (401, "SCHEDULE_TOKEN_REQUIRED"), route
                assert answer.headers["www-authenticate"] == "Bearer"
                assert bad is None or bad not in answer.text
            denied = [await ask(client, route, tokens[scope]) for scope in BELOW[rule.scope]]
            if "{key}" in route or rule.everything:
                # Whether a schedule exists is not shown.
                denied += [await ask(client, route, theirs, key)
                           for key in ("billing.filed", "billing.unknown")]  # fmt: skip
            for answer in denied:
                found = answer.status_code, answer.json()["code"]
                assert found == (403, "SCHEDULE_ACCESS_DENIED"), route
        assert await api.stored() == before
        for route, rule in ROUTES.items():
            answer = await ask(client, route, tokens.get(rule.scope, whole))
            assert answer.status_code not in {401, 403}, route


async def test_a_token_of_some_keys_sees_and_makes_only_those(api):
    token = await api.token(keys=["billing.*"])
    async with api.client(token) as client:
        listed = await client.get(PATH)
        assert [each["key"] for each in listed.json()["schedules"]] == ["billing.filed"]
        assert (await client.post(PATH, json=BILLING)).status_code == 201
        for key in ("shipping.x", "xbilling.x", "billing"):
            answer = await client.post(PATH, json={**BILLING, "key": key})
            assert (answer.status_code, answer.json()["code"]) == (403, "SCHEDULE_ACCESS_DENIED")
        unnamed = await client.post(PATH, json={"workflow": "noop", "everyMs": 60000})
        assert unnamed.status_code == 403
        child = {"key": "billing.child", "workflow": "noop", "after": {"schedule": "filed"}}
        assert (await client.post(PATH, json=child)).status_code == 403
        missing = await client.get(f"{PATH}/billing.filled")
        assert missing.status_code == 404
        assert "filed" not in missing.json()["detail"] + (missing.json()["hint"] or "")
        assert (await client.get("/api/v1/dead?key=filed")).status_code == 403
        assert (await client.get("/api/v1/dead")).json() == {"letters": []}


PLAIN: dict[str, Any] = {"workflow": "noop", "cron": "0 2 * * *"}
ELSEWHERE: list[tuple[dict[str, Any], str]] = [
    ({"project": "victim"}, "the project victim"),
    ({"taskQueue": "other-teams"}, "the task queue other-teams"),
    ({"external": True}, "the external type noop"),
    ({"external": True, "taskQueue": "other-teams", "workflow": "AnyType"}, "the task queue"),
]


async def test_a_token_of_some_keys_names_the_places_in_which_it_may_start_runs(api):
    token = await api.token("keyed", keys=["a.*"])
    before = None
    async with api.client(token) as client:
        made = await client.post(PATH, json={"key": "a.mine", **PLAIN})
        assert made.status_code == 201, made.text
        await client.patch(f"{PATH}/a.mine", json={"description": "x"}, headers={"If-Match": "*"})
        before = await api.stored()
        for more, said in ELSEWHERE:
            for method, path, body in (
                ("POST", PATH, {"key": "a.new", **PLAIN, **more}),
                ("PUT", f"{PATH}/a.mine", {**PLAIN, **more}),
                ("PUT", f"{PATH}/a.new", {**PLAIN, **more}),
                ("PATCH", f"{PATH}/a.mine", more),
            ):
                answer = await client.request(method, path, json=body, headers={"If-Match": "*"})
                found = answer.status_code, answer.json()["code"]
                assert found == (403, "SCHEDULE_ACCESS_DENIED"), (method, path, more)
                assert f"token keyed is not for {said}" in answer.json()["detail"]
    assert await api.stored() == before


async def test_a_token_may_use_the_places_that_it_names_and_no_token_of_few_is_for_all(api):
    places = {"projects": ["shop-*"], "task_queues": ["*"], "external": ["Shop*"]}
    shop = await api.token("shop", keys=["a.*"], **places)
    every = await api.token("every", **places)
    there = {**PLAIN, "project": "shop-eu", "taskQueue": "any"}
    async with api.client(shop) as client:
        typed = {**there, "external": True, "workflow": "ShopReport"}
        assert (await client.put(f"{PATH}/a.x", json=typed)).status_code == 201
        edit = {"workflow": "OtherReport"}  # external, as it is
        answer = await client.patch(f"{PATH}/a.x", json=edit, headers={"If-Match": "*"})
        assert answer.json()["code"] == "SCHEDULE_ACCESS_DENIED"
        assert (await client.put(f"{PATH}/a.y", json=PLAIN)).status_code == 403, "the default one"
    async with api.client(every) as client:
        assert (await client.put(f"{PATH}/b.x", json=there)).status_code == 201
        assert (await client.put(f"{PATH}/b.y", json=PLAIN)).status_code == 403
        assert (await client.get("/api/v1/workers")).status_code == 403


async def test_a_rename_and_a_renamed_schedule_need_a_token_for_both_keys(api):
    async with api.client(await api.token("all")) as client:
        assert (await client.post(PATH, json={**BILLING, "key": "billing.old"})).status_code == 201
    both, one = [await api.token(f"of-{len(keys)}", keys=keys) for keys in (
        ["billing.*", "shipping.*"], ["billing.*"])]  # fmt: skip
    body = {"key": "shipping.new"}
    async with api.client(one) as client:
        assert (await client.post(f"{PATH}/billing.old/rename", json=body)).status_code == 403
    async with api.client(both) as client:
        made = await client.post(f"{PATH}/billing.old/rename", json=body)
        assert made.status_code == 200, made.text
        assert (await client.get(f"{PATH}/shipping.new/fires")).status_code == 200
    async with api.client(one) as client:
        answer = await client.get(f"{PATH}/billing.old/executions")
        assert answer.json()["code"] == "SCHEDULE_ACCESS_DENIED"
        assert "shipping" not in answer.text


async def test_no_error_names_a_schedule_that_the_token_is_not_for(api):
    followed = {"key": "billing.first", "workflow": "noop", "cron": "0 2 * * *"}
    async with api.client(await api.token("all")) as client:
        secret = {**BILLING, "key": "secret.one", "clientRequestId": "order-1"}
        assert (await client.post(PATH, json=secret)).status_code == 201
        assert (await client.post(PATH, json=followed)).status_code == 201
        child = {**BILLING, "key": "secret.two", "needs": ["billing.first"]}
        assert (await client.post(PATH, json=child)).status_code == 201
    async with api.client(await api.token("some", keys=["billing.*"])) as client:
        edit = {"cron": "30 3 * * *"}
        refused = [
            (await client.post(PATH, json={**BILLING, "clientRequestId": "order-1"}),
             "SCHEDULE_CLIENT_REQUEST_ID_IN_USE"),
            (await client.post(f"{PATH}/billing.first/reschedule", json=edit),
             "SCHEDULE_PARENT_TIMES_DIFFER"),
            (await client.patch(f"{PATH}/billing.first", json=edit, headers={"If-Match": "*"}),
             "SCHEDULE_PARENT_TIMES_DIFFER"),
        ]  # fmt: skip
        for answer, code in refused:
            assert answer.json()["code"] == code, answer.text
            assert "secret" not in answer.text


async def test_the_open_door_of_loopback_shuts_with_the_first_token_and_stays_shut(api):
    async with api.client() as client:
        assert (await client.get(PATH)).status_code == 200
        token = await api.token("first", "read")
        assert (await client.get(PATH)).status_code == 401
        await api.service.revoke_token("first")
        assert (await client.get(PATH)).status_code == 401
    async with api.client(token) as client:
        assert (await client.get(PATH)).status_code == 401


async def test_an_api_that_others_can_reach_does_not_start_without_a_token(api):
    options = ApiOptions()
    with pytest.raises(SettingsInvalid, match="there is no token; make one with `sched token"):
        await require_tokens(api.app, options, host="192.0.2.1")
    assert not await require_tokens(api.app, ApiOptions(open_door=True), host="127.0.0.1")
    await require_tokens(api.app, ApiOptions(tokens={"SCHED_API_TOKEN": "x" * 40}), host="::")
    await api.token()
    assert await require_tokens(api.app, options, host="192.0.2.1")


async def test_the_last_use_of_a_token_is_recorded_and_its_secret_is_nowhere(api, caplog):
    token = await api.token("bot", "read")
    secret = token.split("_", 2)[2]
    async with api.client(token) as client:
        await client.get(PATH)
        await client.get(f"{PATH}/nothing")
    (row,) = await api.service.tokens()
    assert (row.used_from, row.in_force) == ("127.0.0.1", True)
    assert row.used_at
    assert datetime.now(UTC) - row.used_at < timedelta(minutes=1)
    assert secret not in caplog.text
    made = await api.service.create_token("other", scope="read")
    assert made.secret not in repr(made)
    async with api.ledger.transaction() as transaction:
        connection: asyncpg.Connection = transaction.connection
        dump = await connection.fetch(
            "SELECT to_jsonb(t)::text AS row FROM sched.api_tokens t WHERE namespace = $1",
            api.ledger.namespace,
        )
    assert len(dump) == 2
    assert all(secret not in each["row"] for each in dump)


async def test_a_revoked_token_changes_nothing_and_reads_for_a_second_at_most(api, monkeypatch):
    now, read = 1000.0, []
    monkeypatch.setattr(access, "monotonic", lambda: now)
    token_of = ScheduleService.token_of

    async def counted(self, secret):
        read.append(secret)
        return await token_of(self, secret)

    monkeypatch.setattr(ScheduleService, "token_of", counted)
    token = await api.token("bot", "operate")
    async with api.client(token) as client:
        for _ in range(3):
            assert (await client.get(PATH)).status_code == 200
        assert read == [token], "reads ask the ledger twice a second"
        await api.service.revoke_token("bot")
        now += 0.4
        assert (await client.get(PATH)).status_code == 200
        assert (await client.post(f"{PATH}/filed/pause", json={})).status_code == 401
        assert (await client.get(PATH)).status_code == 401, "from then on it is known here"
    other = await api.token("other", "operate")
    elsewhere = httpx.ASGITransport(app=api.app, client=("192.0.2.7", 1))
    for transport in (None, elsewhere):
        async with api.client(other) as client:
            client._transport = transport or client._transport
            assert (await client.get(PATH)).status_code == 200
    assert {row.used_from for row in await api.service.tokens()} == {"127.0.0.1", "192.0.2.7"}
    async with api.client(other) as client:
        assert (await client.get(PATH)).status_code == 200
        await api.service.revoke_token("other")
        now += 0.5
        assert (await client.get(PATH)).status_code == 401


async def test_a_token_has_a_free_name_a_scope_and_patterns_of_keys(api):
    await api.token("bot")
    with pytest.raises(TokenNameInUse):
        await api.token("bot")
    past = datetime(2000, 1, 1, tzinfo=UTC)
    refused: list[dict[str, Any]] = [
        {"name": "a b"}, {"scope": "root"}, {"keys": ["Billing.*"]}, {"keys": []},
        {"expires": timedelta(0)}, {"expires": past}, {"projects": ["a b"]}, {"external": []},
    ]  # fmt: skip
    for wrong in refused:
        given = {"name": "new", "scope": "read", **wrong}
        with pytest.raises(TokenInvalid):
            await api.service.create_token(given.pop("name"), **given)
    await api.service.revoke_token("bot")
    with pytest.raises(TokenNotFound):
        await api.service.revoke_token("bot")
    await api.token("bot")


# --- pages of other sites ---


FOREIGN = [
    {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example:8230"},
    {"Host": "127.0.0.1@evil.example"},
    {"Host": ""},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:8231"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


async def test_a_page_of_another_site_cannot_use_the_open_door(api):
    before = await api.stored()
    async with api.client() as client:
        for headers in FOREIGN:
            for answer in (
                await client.get(PATH, headers=headers),
                await client.post(PATH, json=BILLING, headers=headers),
            ):
                found = answer.status_code, answer.json()["code"]
                assert found == (403, "SCHEDULE_ORIGIN_FOREIGN"), headers
                assert not any(name.startswith("access-control") for name in answer.headers)
    assert await api.stored() == before


@pytest.mark.parametrize(
    "host",
    [
        "[::1].evil.com", "[::1]evil.com", "[::1", "::1]", "[[::1]]", "127.0.0.1.evil.com",
        "localhost.evil.com", "127.0.0.1:80@evil.com", "localhost:8230:1", "", "evil.com:127.0.0.1",
    ],
)  # fmt: skip
async def test_a_name_that_only_looks_like_loopback_is_foreign(api, host):
    async with api.client(Host=host) as client:
        answer = await client.get(PATH)
    assert (answer.status_code, answer.json()["code"]) == (403, "SCHEDULE_ORIGIN_FOREIGN")


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        (PATH, "GET, POST"),
        (f"{PATH}/a", "DELETE, GET, PATCH, PUT"),
        (f"{PATH}/a/pause", "POST"),
        (f"{PATH}/a/executions/sched:a:1", "GET"),
        ("/api/v1/hooks/x", "DELETE, PATCH"),
        ("/signin", "GET, POST"),
    ],
)
async def test_a_method_that_a_path_does_not_have_is_answered_with_all_that_it_has(
    api, path, methods
):
    async with api.client() as client:
        answer = await client.request("TRACE", path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)


async def test_its_own_names_are_accepted(shared_database_url):
    async with (
        rest_api(shared_database_url, hosts=["sched.example.com"]) as api,
        api.client() as client,
    ):
        for host in ("localhost:8230", "[::1]:8230", "127.0.0.1", "Sched.example.COM"):
            for origin in ({}, {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}):
                answer = await client.get(PATH, headers={"Host": host, **origin})
                assert answer.status_code == 200, (host, origin)


async def test_a_body_that_a_form_could_send_is_refused(api):
    kinds = ("text/plain", "application/x-www-form-urlencoded", None)
    async with api.client() as client:
        for kind, path in product(kinds, ("", "/filed/pause")):
            headers = {"Content-Type": kind} if kind else {}
            answer = await client.post(PATH + path, content=b"{}", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (
                415, "SCHEDULE_MEDIA_TYPE_WRONG",
            )  # fmt: skip


# --- injections and excesses ---


NO_KEYS = [
    "a:b", "a%0Ab", "a%0D%0AX: y", "..", "%2e%2e", "..%2f..%2fetc", "@noop", "A", "a" * 201, "%00",
     "a%20b", "é", "a;b", "sched:filed:1"
]  # fmt: skip


async def test_a_path_with_something_else_than_a_key_finds_nothing(api):
    before = await api.stored()
    async with api.client() as client:
        routes = [("GET", ""), ("POST", "/pause"), ("DELETE", ""), ("GET", "/next")]
        for key, (method, path) in product(NO_KEYS, routes):
            body: Any = {} if method == "POST" else None
            answer = await client.request(method, f"{PATH}/{key}{path}", json=body)
            assert answer.status_code in {400, 404, 405}, answer.text
            assert answer.headers["content-type"] == "application/problem+json"
    assert await api.stored() == before


async def test_a_declaration_with_such_a_key_is_refused(api):
    before = await api.stored()
    async with api.client() as client:
        for key in ("a:b", "a\nb", "..", "../x", "@noop", "", " ", "a" * 201, 7, ["a"]):
            answer = await client.post(PATH, json={**BILLING, "key": key})
            assert answer.status_code == 422, answer.text
        declared = await client.post(PATH, json={**BILLING, "key": "a:b"})
        renamed = await client.post(f"{PATH}/a/rename", json={"key": "a:b"})
        for part in ("code", "detail", "status"):
            assert renamed.json()[part] == declared.json()[part], "one rule, one answer"
    assert await api.stored() == before


async def test_a_moment_that_is_none_is_refused_in_our_words(api):
    async with api.client() as client:
        answer = await client.post(f"{PATH}/filed/pause", json={"until": "tomorrow"})
    said = "until: write a moment with its offset, as 2026-12-24T18:00:00Z"
    assert (answer.status_code, answer.json()["detail"]) == (400, said)


async def test_a_reason_is_one_line(api):
    before = await api.stored()
    async with api.client() as client:
        for text in ("a\r\nb", "a\nb", "a\x00b", "\x1b[31m", "a\u2028b", "x" * 1001):
            for path in ("pause", "resume", "trigger", "cancel"):
                answer = await client.post(f"{PATH}/filed/{path}", json={"reason": text})
                assert (answer.status_code, answer.json()["code"]) == (
                    400, "SCHEDULE_REQUEST_MALFORMED",
                )  # fmt: skip
                if len(text) < 1000:
                    said = "reason: write one line, without control characters"
                    assert answer.json()["detail"] == said
            declared = await client.post(PATH, json={**BILLING, "reason": text})
            assert declared.status_code == 422
    assert await api.stored() == before


NO_DECLARATIONS = [
    b"[" * 100_000, b'{"a":' * 100_000, b'{"input": NaN}', b"\xff\xfe", b'"\\ud800"', b"7" * 5000,
     b"[]", b"null", b'"text"', b"{", b'{"workflow": "noop", "everyMs": 60000, "input": "\\u0000"}',
     b'{"workflow": "noop", "everyMs": 60000, "connection": 1}',
     b'{"workflow": "noop", "everyMs": 60000, "self": 1}',
     b'{"workflow": "noop", "everyMs": 60000, "sealedInput": {"payload": "x", "digest": "y"}}',
     b'{"workflow": ["noop"], "everyMs": 60000}', b'{"everyMs": 60000}',
     b'{"workflow": "noop", "at": 5}', b'{"workflow": "noop", "at": []}',
     b'{"workflow": "noop", "everyMs": 60000, "input": 1e400}'
]  # fmt: skip


async def test_all_that_is_wrong_with_a_declaration_is_named_at_once(api):
    wrong = {
        "key": "A b", "workflow": "noop", "cron": "bad", "foo": 1, "timezon": "UTC",
        "reason": "a\nb", "maxRetries": 3,
    }  # fmt: skip
    async with api.client() as client:
        made = (await client.post(PATH, json=wrong)).json()["detail"]
        for part in ("reason is not", "key is 'A b'", "foo is not a field", 'cron "BAD"',
                     "did you mean timezone?"):  # fmt: skip
            assert part in made, made
        assert "maxRetries" not in made
        await client.post(PATH, json=BILLING)
        edited = await client.patch(
            f"{PATH}/billing.nightly", json={"cron": "bad", "foo": 1}, headers={"If-Match": "*"}
        )
        moved = await client.post(
            f"{PATH}/billing.nightly/reschedule", json={"cron": "bad", "workflow": "noop"}
        )
    assert 'cron "BAD"' in edited.json()["detail"]
    assert "foo is not" in edited.json()["detail"]
    assert "missing" not in edited.json()["detail"]
    assert 'cron "BAD"' in moved.json()["detail"]
    assert "workflow is no field here" in moved.json()["detail"]


async def test_a_body_that_is_no_declaration_is_refused(api):
    before = await api.stored()
    headers = {"Content-Type": "application/json"}
    async with api.client() as client:
        for body in NO_DECLARATIONS:
            answer = await client.post(PATH, content=body, headers=headers)
            assert answer.status_code in {400, 422}, (body[:80], answer.text)
            assert answer.json()["code"].startswith("SCHEDULE_")
    assert await api.stored() == before


async def test_ten_megabytes_are_not_read(api):
    read = 0

    async def chunks():
        nonlocal read
        for _ in range(160):
            read += 65536
            yield b" " * 65536

    before = await api.stored()
    headers = {"Content-Type": "application/json"}
    async with api.client() as client:
        for path in (PATH, f"{PATH}/filed/trigger", "/api/v1/plan"):
            for announced, most in (({"Content-Length": "10000000"}, 0), ({}, 1_200_000)):
                read = 0
                answer = await client.post(path, content=chunks(), headers=headers | announced)
                assert (answer.status_code, answer.json()["code"]) == (
                    413, "SCHEDULE_BODY_TOO_LARGE",
                )  # fmt: skip
                assert read <= most
    assert await api.stored() == before


async def test_a_page_has_a_largest_size(api):
    async with api.client() as client:
        for path in (PATH, f"{PATH}/filed/executions", "/api/v1/dead", f"{PATH}/filed/next"):
            for limit in ("0", "501", "-1", "1e3", "9" * 30):
                answer = await client.get(path, params={"limit": limit})
                assert answer.status_code == 400, (path, limit)


async def test_a_cursor_that_no_page_gave_is_refused(api):
    made_up: list[Any] = [
        ["0001-01-01T00:00:00+14:00", "x"], ["9999-12-31T23:59:59-14:00", "x"], ["now", "x"],
        ["2026-11-01T00:00:00", "x"], ["2026-11-01T00:00:00Z", "\0"], ["x"], {}, 7,
    ]  # fmt: skip
    async with api.client() as client:
        for place in made_up:
            cursor = as_cursor(*place) if isinstance(place, list) else str(place)
            for path in (PATH, f"{PATH}/filed/executions"):
                answer = await client.get(path, params={"cursor": cursor})
                assert (answer.status_code, answer.json()["code"]) == (
                    400, "SCHEDULE_CURSOR_INVALID",
                ), (path, place)  # fmt: skip


async def test_each_caller_has_limits_of_its_own(shared_database_url):
    rates = {"create": Rate(2, timedelta(minutes=1)), "trigger": Rate(2, timedelta(minutes=1))}
    async with rest_api(shared_database_url, rates=rates) as api:
        tokens = [await api.token(name) for name in ("one", "two")]
        for token in tokens:
            async with api.client(token) as client:
                codes = [
                    (await client.post(PATH, json={"workflow": "noop", "everyMs": 60000}))
                    for _ in range(3)
                ]
                assert [each.status_code for each in codes] == [201, 201, 429]
                assert 1 <= int(codes[2].headers["retry-after"]) <= 60
                assert codes[2].json()["code"] == "SCHEDULE_RATE_EXCEEDED"
                for _ in range(2):
                    begun = await client.post(f"{PATH}/filed/trigger", json={})
                    assert begun.status_code != 429, "each kind is counted by itself"
                assert (await client.post(f"{PATH}/filed/trigger", json={})).status_code == 429
                assert (await client.post(f"{PATH}/filed/pause", json={})).status_code == 200


async def test_refused_requests_are_logged_without_secrets_and_limited_for_an_address(
    shared_database_url, caplog, monkeypatch
):
    monkeypatch.setattr(access, "_TRUST", 0.0)  # each is looked up
    rates = {"refused": Rate(6, timedelta(minutes=1))}
    async with rest_api(shared_database_url, rates=rates) as api, api.client() as client:
        mine = await api.token("mine", "read", keys=["billing.*"])
        forged = [f"sched_{number:016x}_{'a' * 43}" for number in range(10)]
        signs = {"Authorization": f"Bearer {mine}"}
        assert (await client.get(f"{PATH}/billing.filed", headers=signs)).status_code == 200
        seen = [
            (await client.get(f"{PATH}/filed", headers=signs)).status_code,
            (await client.post(f"{PATH}/billing.filed/pause", headers=signs)).status_code,
            (await client.get(PATH, headers={"Host": "evil.example"})).status_code,
            (await client.get("/", headers={"Host": "evil.example"})).status_code,
            *[(await client.post("/signin", data={"token": each})).status_code for each in forged],
        ]
        assert seen == [403, 403, 403, 403, 401, 401, *[429] * 8]
        late = await client.get(PATH, headers={"Authorization": f"Bearer {forged[0]}"})
        assert (late.status_code, late.headers["retry-after"]) == (429, "60")
        assert (await client.get(f"{PATH}/billing.filed", headers=signs)).status_code == 200
    lines = [each.message for each in caplog.records if "is refused" in each.message]
    assert lines == [
        f"GET {PATH}/{{key}} of 127.0.0.1 is refused: token mine is not for the schedule filed",
        (
            f"POST {PATH}/{{key}}/pause of 127.0.0.1 is refused: this needs a token of scope"
            " operate, and token mine has read"
        ),
        f"GET {PATH} of 127.0.0.1 is refused: the API has no name 'evil.example'",
        "GET / of 127.0.0.1 is refused: the API has no name 'evil.example'",
        "POST /signin of 127.0.0.1 is refused: the token is not in force",
        (
            "POST /signin of 127.0.0.1 is refused: the token is not in force; its next ones are"
            " answered with 429, and not logged"
        ),
    ]
    assert not any(secret in caplog.text for secret in (*forged, mine))


def test_addresses_of_one_ipv6_network_share_a_limit():
    refusals = Refusals(Rate(1, timedelta(minutes=1)))
    refusals.note("GET /", "2001:db8::1", TokenRequired())
    with pytest.raises(RateExceeded):
        refusals.require_left("2001:db8::ffff")
    refusals.require_left("2001:db8:0:1::1")
    refusals.require_left("10.0.0.7")


async def test_no_answer_is_stored_or_guessed_at(api):
    async with api.client() as client:
        for path in (PATH, "/nothing", "/healthz", f"{PATH}/nothing"):
            answer = await client.get(path)
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "server" not in answer.headers
            if answer.status_code == 404:
                assert answer.json()["instance"] == path


# --- bytes ---


LINE = "GET /api/v1/schedules HTTP/1.1\r\n"
POST = "POST /api/v1/schedules HTTP/1.1\r\nHost: {own}\r\nContent-Type: application/json\r\n"
RAW = {
    "a header without end": (LINE + "Host: {own}\r\nX: " + "a" * 200_000, 400),
    "two names": (LINE + "Host: {own}\r\nHost: evil.example\r\n\r\n", 400),
    "another name": (LINE + "Host: 127.0.0.1.evil.example\r\n\r\n", 403),
    "no name": ("GET /api/v1/schedules HTTP/1.0\r\n\r\n", 403),
    "two lengths": (POST + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}", 400),
    "a length that is none": (POST + "Content-Length: -1\r\n\r\n{{}}", 400),
    "a coding behind another": (
        POST + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "a line break in a header": (LINE + "Host: {own}\r\nX: a\nOrigin: x\r\n\r\n", 403),
    "a preflight of another site": (
        "OPTIONS /api/v1/schedules HTTP/1.1\r\nHost: {own}\r\nOrigin: http://evil.example\r\n\r\n",
        405,
    ),
}


async def test_bytes_that_a_proxy_and_a_server_may_read_differently_are_refused(virtual_ledger):
    place = listening("127.0.0.1", 0)
    own = f"127.0.0.1:{place.getsockname()[1]}"
    app = create_app(virtual_ledger, ApiOptions(open_door=True))
    async with serving(app, place):
        for name, (text, status) in RAW.items():
            reader, writer = await asyncio.open_connection(*place.getsockname())
            writer.write(text.format(own=own).encode())
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).decode().lower()
            assert head.startswith(f"http/1.1 {status} "), (name, head)
            assert "access-control" not in head
            writer.close()
