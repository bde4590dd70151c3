"""The page for operators as a browser gets it: who may see and do what, and that it is all text."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from html.parser import HTMLParser
from typing import Any
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from engine.api import problems
from engine.api.access import PAGE_ROUTES
from engine.api.app import create_app
from engine.api.requests import ApiOptions
from engine.errors import LedgerUnavailable
from engine.ledger import Ledger
from engine.page.layout import digest
from engine.runtime.apply.apply import apply
from engine.schedules import load_schedules
from engine.service.operate import Resumed
from tests.page_story import IMAGE, SCRIPT, tell
from tests.rest import RestApi, rest_api
from tests.servers import run_apart

BELOW = {"operate": ["read"], "read": []}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest_asyncio.fixture(loop_scope="module")
async def api(connected):
    async with rest_api(connected, ui_url="http://127.0.0.1:8233") as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def browser(api):
    """A browser on this machine, before the ledger has a token."""
    async with api.client() as client:
        yield client


async def signed_in(api: RestApi, token: str) -> httpx.AsyncClient:
    client = api.client()
    answer = await client.post("/signin", data={"token": token, "next": "/week"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/week")
    return client


async def word_of(client: httpx.AsyncClient, path: str = "/schedules/filed") -> str:
    found = re.search(r'name="word" value="(\w+)"', (await client.get(path)).text)
    assert found
    return found[1]


async def said(client: httpx.AsyncClient, answer: httpx.Response) -> str:
    """Follow the answer to a form, and return what its page says once."""
    assert answer.status_code == 303, answer.text
    page = await client.get(answer.headers["location"])
    found = re.search(r'<p class="said[^>]*>(.*?)</p>', page.text)
    assert found, page.text
    return html.unescape(found[1])


def filled(route: str, key: str = "filed") -> tuple[str, str]:
    method, path = route.split(" ")
    return method, path.format(key=key)


# --- who may ---


async def test_every_view_asks_for_a_sign_in_and_every_form_is_refused_without_one(api):
    await api.token("first")
    before = await api.stored()
    async with api.client() as client:
        for route in PAGE_ROUTES:
            method, path = filled(route)
            answer = await client.request(method, path, content="x=1", headers=FORM)
            if method == "GET":
                place = httpx.URL(answer.headers["location"])
                assert (answer.status_code, place.path) == (303, "/signin")
                assert place.params["next"] == path
                stream = await client.get(path, headers={"Accept": "text/event-stream"})
                assert stream.status_code == 401
            else:
                assert answer.status_code == 401, route
                assert "SCHEDULE_TOKEN_REQUIRED" in answer.text
        refused = await client.post("/signin", data={"token": "sched_0_0"})
        assert (refused.status_code, "not in force" in refused.text) == (401, True)
    assert await api.stored() == before


async def test_a_token_does_what_its_scope_and_its_keys_allow(api):
    tokens = {scope: await api.token(scope, scope) for scope in ("read", "operate")}
    before = await api.stored()
    for route, rule in PAGE_ROUTES.items():
        method, path = filled(route)
        for scope in BELOW[rule.scope]:
            client = await signed_in(api, tokens[scope])
            answer = await client.request(method, path, content="word=x", headers=FORM)
            found = answer.status_code, "SCHEDULE_ACCESS_DENIED" in answer.text
            assert found == (403, True), route
    reader = await signed_in(api, tokens["read"])
    page = (await reader.get("/schedules/filed")).text
    assert "<h1" in page
    assert "/pause" not in page, "a form that is refused is not offered"

    some = await signed_in(api, await api.token("some", "operate", keys=["billing.*"]))
    listed = (await some.get("/")).text
    assert ("billing.filed" in listed, ">filed<" in listed) == (True, False)
    week = (await some.get("/week")).text
    assert ("billing.filed" in week, ">filed<" in week) == (True, False)
    for path in (
        "/schedules/filed",
        "/schedules/unknown",
        "/workers",
        "/alerts",
        "/dead?key=filed",
    ):
        assert (await some.get(path)).status_code == 403, path
    assert "filed" not in (await some.get("/schedules/billing.filled")).text.replace("filled", "")
    for child in ("billing.child", "secret.child"):
        await api.service.schedule_repeat(
            "noop", key=child, cron="0 2 * * *", needs=["billing.filed"]
        )
    before, page = await api.stored(), (await some.get("/schedules/billing.filed")).text
    assert ("billing.child" in page, "secret" in page) == (True, False)
    assert await api.stored() == before


async def test_no_form_reaches_a_schedule_that_the_token_is_not_for_nor_one_that_is_over(api):
    late = api.client()
    ended = await api.token("late", "admin", expires=timedelta(milliseconds=1))
    late.cookies.set("sched-session-8230", ended, domain="127.0.0.1")
    some = await signed_in(api, await api.token("some", "admin", keys=["billing.*"]))
    word, before = await word_of(some, "/schedules/billing.filed"), await api.stored()
    for route, rule in PAGE_ROUTES.items():
        method, path = filled(route)
        body = {"word": word, "run": "sched:filed:1"}
        if "{key}" in route or rule.everything:
            for key in ("filed", "unknown"):
                answer = await some.request(method, filled(route, key)[1], data=body)
                assert (answer.status_code, "SCHEDULE_ACCESS_DENIED" in answer.text) == (403, True)
        answer = await late.request(method, path, data=body)
        assert answer.status_code == (303 if method == "GET" else 401), route
        assert method == "POST" or answer.headers["location"].startswith("/signin?"), route
    # A letter is named by the form, not by the address.
    for verb in ("rerun", "drop"):
        answer = await some.post(
            f"/schedules/billing.filed/dead/{verb}", data={"word": word, "run": "sched:filed:1"}
        )
        assert "SCHEDULE_LETTER_NOT_FOUND" in await said(some, answer)
    answer = await some.post("/schedules/billing.filled/pause", data={"word": word, "reason": "x"})
    assert answer.status_code == 303
    notice = re.search(r'<p class="said[^>]*>(.*?)</p>', (await some.get("/")).text)
    assert notice
    assert "there is no schedule billing.filled" in notice[1]
    assert "mean" not in notice[1], "a hint would name what is not the visitor's"
    assert await api.stored() == before


async def test_the_cookie_is_for_the_page_alone_and_no_script_or_other_site_gets_it(api):
    token = await api.token()
    client = await signed_in(api, token)
    async with api.client() as first:
        given = (await first.post("/signin", data={"token": token})).headers["set-cookie"].lower()
    assert "httponly" in given
    assert "samesite=strict" in given
    assert "sched-session-8230=" in given, "ports share their cookies"
    assert token.lower() not in given
    assert (await client.get("/api/v1/schedules")).status_code == 401
    assert (await client.get("/")).status_code == 200
    page = await client.get("/")
    assert token not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<style" not in page.text
    assert not re.search(r"<script(?! src=)|\son\w+=|style=", page.text)
    out = await client.post("/signout", data={"word": await word_of(client)})
    assert out.headers["location"] == "/signin"
    assert (await client.get("/")).status_code == 303


async def test_a_webhook_that_accepts_nothing_is_among_the_alerts_and_in_the_list_of_hooks(
    api, browser
):
    hook = await api.service.declare_hook("https://hooks.example/in/s3cr3t", secret="${env:S}")  # noqa: S106 - the name of a variable
    book = api.ledger.events
    assert "accept nothing" not in (await browser.get("/alerts")).text
    assert await book.take(hook.name, "a", timedelta(seconds=30))
    settle = partial(book.settle, hook.name, "a", position=0, fresh=[], again=[])
    why = "hooks.example does not <answer> within 10 s"
    assert await settle(failing=why, rest=timedelta(seconds=1))
    page = (await browser.get("/alerts")).text
    assert "Subscribers of events that accept nothing" in page
    assert html.escape(why) in page
    assert "s3cr3t" not in page
    (shown,) = (await browser.get("/api/v1/hooks")).json()["hooks"]
    assert shown["failingError"] == why
    assert shown["failingSince"] < shown["retryAt"]
    assert await settle()
    assert "accept nothing" not in (await browser.get("/alerts")).text


async def test_a_sign_out_ends_the_session_for_every_copy_of_its_cookie_and_no_other_one(api):
    token = await api.token("bot", "operate")
    client, other, copy = await signed_in(api, token), await signed_in(api, token), api.client()
    copy.cookies.update(client.cookies)
    assert (await copy.get("/")).status_code == 200
    word = await word_of(copy)
    (session,) = {*client.cookies.values()}
    async with api.client(session) as bearer:
        assert (await bearer.get("/api/v1/schedules")).status_code == 401, "it is no token"
    assert (await client.post("/signout", data={"word": await word_of(client)})).is_redirect
    assert (await copy.get("/")).headers["location"].startswith("/signin")
    refused = await copy.post("/schedules/filed/pause", data={"word": word, "reason": "x"})
    assert refused.status_code == 401
    assert (await other.get("/")).status_code == 200
    elsewhere = RestApi(api.ledger, create_app(api.ledger, ApiOptions()))
    second = elsewhere.client()
    second.cookies.update(other.cookies)
    assert (await second.get("/")).status_code == 200, "another process knows the session"
    await api.service.revoke_token("bot")
    word = await word_of(other) if (await other.get("/")).is_success else ""
    refused = await other.post("/schedules/filed/pause", data={"word": word, "reason": "x"})
    assert refused.status_code == 401


async def test_a_session_by_a_token_of_the_process_ends_with_it(api):
    async def visited(secret: str) -> int:
        options = ApiOptions(tokens={"sched up": secret})
        client = RestApi(api.ledger, create_app(api.ledger, options)).client()
        client.cookies.update(cookies)
        return (await client.get("/")).status_code

    secret = "s" * 32
    options = ApiOptions(tokens={"sched up": secret}, codes={"once": secret})
    first = RestApi(api.ledger, create_app(api.ledger, options)).client()
    assert (await first.get("/enter/once")).headers["location"] == "/"
    cookies = first.cookies
    assert await visited(secret) == 200
    assert await visited("t" * 32) == 303, "of the next run"


async def test_a_session_ends_after_thirty_days(api):
    client = await signed_in(api, await api.token())
    aged = "UPDATE api_sessions SET begun_at = begun_at - interval '30 days' WHERE namespace = $1"
    await api.ledger._connections.fetch(aged, api.ledger.namespace)
    assert (await client.get("/")).status_code == 303
    kept = "SELECT count(*) AS n FROM api_sessions WHERE namespace = $1"
    await api.ledger.access.forget(requests=timedelta(days=1), sessions=timedelta(days=30))
    (row,) = await api.ledger._connections.fetch(kept, api.ledger.namespace)
    assert row["n"] == 0


@pytest.mark.parametrize("place", ["//evil.example", "/\\evil.example", "https://evil.example", ""])
async def test_a_sign_in_leads_to_no_other_site(api, place):
    token = await api.token()
    async with api.client() as client:
        answer = await client.post("/signin", data={"token": token, "next": place})
    assert answer.headers["location"] == "/"


async def test_no_other_site_can_send_a_form_and_a_link_from_one_still_leads_here(api, browser):
    word = await word_of(browser)
    path, before = "/schedules/filed/pause", await api.stored()
    elsewhere: list[dict[str, str]] = [
        {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1:9999"}, {"Host": "evil.example"},
    ]  # fmt: skip
    for headers in elsewhere:
        refused = await browser.post(path, data={"word": word, "reason": "x"}, headers=headers)
        assert refused.status_code == 403, headers
    for form in ({}, {"word": "0" * 64}, {"word": "é"}):
        refused = await browser.post(path, data={"reason": "x", **form})
        assert (refused.status_code, "SCHEDULE_ORIGIN_FOREIGN" in refused.text) == (403, True)
    json = await browser.post(path, json={"word": word})
    assert json.status_code == 415
    assert await api.stored() == before
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert (await browser.get("/", headers=link)).status_code == 200
    await api.token("first")
    again = await browser.get("/", headers=link)
    assert (again.status_code, 'http-equiv="refresh"' in again.text) == (200, True)


async def test_an_address_of_sched_up_signs_in_once(shared_database_url):
    secret = "s" * 40
    options: dict[str, Any] = {
        "tokens": {"sched up": secret},
        "codes": {"abc": secret},
        "open_door": False,
    }
    async with rest_api(shared_database_url, **options) as api, api.client() as client:
        assert (await client.get("/enter/other")).headers["location"] == "/signin?used"
        assert (await client.get("/enter/abc")).headers["location"] == "/"
        assert (await client.get("/")).status_code == 200
        async with api.client() as second:
            assert (await second.get("/enter/abc")).headers["location"] == "/signin?used"
            assert (await second.get("/")).status_code == 303


# --- what it does ---


async def test_forms_pause_resume_trigger_skip_and_backfill_with_their_reasons(api, browser):
    place = "/schedules/filed"
    word = await word_of(browser)

    async def send(action: str, **fields: str) -> str:
        return await said(
            browser, await browser.post(f"{place}/{action}", data={"word": word, **fields})
        )

    until = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%dT%H:%M}"
    assert "filed is paused until" in await send("pause", reason="the warehouse moves", until=until)
    row = await api.service.schedule("filed")
    assert row.pause
    assert (row.pause.reason, row.pause.by) == ("the warehouse moves", "api at 127.0.0.1")
    assert "SCHEDULE_" in await send("pause", reason="late", until="2020-01-01T00:00")
    assert "until is no moment" in await send("pause", reason="x", until="soon")
    assert "filed is resumed" in await send("resume")
    assert "filed was not paused" in await send("resume")
    asked = await send("trigger", request="one", input='{"limit": 1}')
    assert 'href="http://127.0.0.1:8233/namespaces/default/workflows/sched%3Afiled' in asked
    assert await send("trigger", request="one", input='{"limit": 1}') == asked, "a second click"
    assert len([f for f in await api.service.fires(key="filed") if f.timing == "manual"]) == 1
    assert "not JSON" in await send("trigger", input="{")
    at = (await api.service.schedule("filed")).schedule.spec.next(datetime.now(UTC))
    assert "will be skipped" in await send("skip", at=at.isoformat(), reason="not this one")
    assert "not this one" in (await browser.get(place)).text
    assert "will start" in await send("unskip", at=at.isoformat())

    hour = {"from": "2026-11-01T00:00", "to": "2026-11-01T01:00"}
    seen = await browser.post(f"{place}/backfill", data={"word": word, "step": "preview", **hour})
    assert (seen.status_code, "Start 61 runs" in seen.text) == (200, True)
    assert await api.service.backfills("filed") == []
    assert "61 runs" in await send("backfill", step="start", reason="a test", **hour)
    (row,) = await api.service.backfills("filed")
    assert (row.windows, row.reason) == (61, "a test")


async def test_each_choice_of_the_windows_of_a_pause_is_a_policy(api, browser, monkeypatch):
    await api.service.pause("filed", reason="a test")
    page = (await browser.get("/schedules/filed")).text
    offered = re.search(r'<select name="catch_up">(.*?)</select>', page)
    assert offered
    asked = []

    async def resume(_: object, key: str, **options: object) -> Resumed:
        asked.append(options["catch_up"])
        return Resumed(key, None, None)

    monkeypatch.setattr(type(api.service), "resume", resume)
    word = await word_of(browser)
    for each in [*re.findall(r'value="(\w*)"', offered[1]), "last"]:
        form = {"word": word, "catch_up": each}
        text = await said(browser, await browser.post("/schedules/filed/resume", data=form))
        assert ("use one of" in text) == (each == "last"), text
    assert asked == [None, "none", "latest", "all"]


async def test_a_form_says_of_our_own_errors_only_their_kind(api, browser, monkeypatch, caplog):
    async def pause(*_: object, **__: object) -> None:
        raise LedgerUnavailable("10.1.2.3 refuses sched_owner")

    monkeypatch.setattr(type(api.service), "pause", pause)
    monkeypatch.setattr(problems, "_AWAY", problems._Away())  # no line of the minute before
    form = {"word": await word_of(browser), "reason": "x"}
    text = await said(browser, await browser.post("/schedules/filed/pause", data=form))
    assert text == "SCHEDULE_LEDGER_UNAVAILABLE: The ledger's database cannot be reached"
    assert "10.1.2.3" in caplog.text


FAR = ["0001-01-01T00:00:00+14:00", "0001-01-01T00:00", "9999-12-31T23:59:59-14:00"]
"""Moments that Python, or PostgreSQL, cannot carry over to UTC."""
BEYOND = [
    ("pause", {"until": FAR[0]}), ("pause", {"until": FAR[2]}), ("skip", {"at": FAR[1]}),
    ("unskip", {"at": FAR[2]}), ("backfill", {"from": FAR[0], "to": "2026-11-01T00:00"}),
    ("trigger", {"input": "1e400"}), ("trigger", {"input": "[" * 100_000}),
]  # fmt: skip


async def test_a_value_that_nothing_can_carry_is_refused_with_a_sentence(api, browser):
    word, before = await word_of(browser), await api.stored()
    for verb, fields in BEYOND:
        answer = await browser.post(f"/schedules/filed/{verb}", data={"word": word, **fields})
        assert (await said(browser, answer)).startswith("SCHEDULE_"), (verb, fields)
    for week in ("0001-01-01", "9999-12-31", "2026-13-01"):
        page = await browser.get("/week", params={"week": week})
        assert (page.status_code, "is no day" in page.text) == (400, True), week
    assert await api.stored() == before


async def test_shadow_mode_and_the_last_window_of_a_limit_are_shown(api, browser):
    shadowed = 'cron: "0 2 * * *", mode: shadow, shadowUntil: "2100-01-01T00:00:00Z"'
    fields = {"watched": shadowed, "limited": 'cron: "0 3 * * *", limit: 2'}
    file = "".join(f"- {{key: {key}, workflow: noop, {each}}}\n" for key, each in fields.items())
    await apply(api.ledger, load_schedules(f"project: more\nschedules:\n{file}"), by="test")
    assert (
        '<span class="pill wait"><i aria-hidden="true"></i>shadow</span>'
        in (await browser.get("/?key=watched")).text
    )
    watched = (await browser.get("/schedules/watched")).text
    assert "It is in shadow mode until 2100-01-01T00:00:00Z" in watched
    assert "recorded only: shadow mode" in watched
    assert 'class="pill wait"' not in (await browser.get("/?key=limited")).text
    limited = (await browser.get("/schedules/limited")).text
    assert limited.count("<li><span>") == 2
    assert "<dt>Left to start</dt><dd>2 of 2</dd>" in limited
    assert "Left to start" not in watched


async def test_what_a_form_has_said_is_shown_once_and_cannot_be_forged(browser):
    word = await word_of(browser)
    answer = await browser.post("/schedules/filed/resume", data={"word": word})
    assert "was not paused" in await said(browser, answer)
    assert "was not paused" not in (await browser.get("/")).text
    browser.cookies.set("sched-said-8230", "eyJ0ZXh0IjogImEgbGllIn0=.00", domain="127.0.0.1")
    assert "a lie" not in (await browser.get("/")).text


# --- a week of a company ---


class Text(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def told(shared_database_url: str) -> str:
    """The namespace in which the story is told."""
    namespace = f"story-{uuid4().hex}"

    async def once() -> None:
        ledger = await Ledger.connect(shared_database_url, namespace=namespace)
        await tell(ledger, shared_database_url)
        await ledger.close()

    run_apart(once())
    return namespace


@pytest.fixture
async def story(shared_database_url, told):
    ledger = await Ledger.connect(shared_database_url, namespace=told, connections=5)
    yield RestApi(
        ledger, create_app(ledger, ApiOptions(open_door=True, ui_url="http://ui.example"))
    )
    await ledger.close()


VIEWS = [
    "/", "/schedules/payments.settle", "/schedules/ledger.reconcile", "/week", "/dead", "/workers",
    "/alerts", "/schedules/invoices.reminders", "/?key=inv*&state=paused",
]  # fmt: skip


@pytest.mark.parametrize("path", VIEWS)
async def test_what_users_wrote_is_text_in_every_view(story, path):
    async with story.client() as client:
        page = await client.get(path)
    assert page.status_code == 200
    assert len(page.content) < 200_000
    assert SCRIPT not in page.text
    assert IMAGE not in page.text
    parsed = Text(page.text)
    assert parsed.tags.count("script") == 1
    assert "img" not in parsed.tags


async def test_attacks_in_reason_input_error_and_address_are_shown_as_they_were_written(story):
    async with story.client() as client:
        reason = Text((await client.get("/schedules/invoices.reminders")).text).text
        assert IMAGE in reason
        assert SCRIPT in Text((await client.get("/schedules/ledger.reconcile")).text).text
        failed = Text((await client.get("/schedules/payments.settle?status=failed")).text)
        assert "unexpected row <script>" in failed.text
        asked = await client.get("/", params={"key": SCRIPT})
        assert SCRIPT not in asked.text
        for name in (IMAGE, SCRIPT.partition("/")[0]):
            missing = await client.get(f"/schedules/{name}")
            assert missing.headers["content-type"] == "text/html; charset=utf-8"
            assert name not in missing.text


async def test_a_view_is_followed_and_time_alone_sends_nothing(story):
    async with story.client() as client:
        page = (await client.get("/")).text
    one = '<time datetime="2026-11-01T00:00:00Z" title="x" data-ago>3 s ago</time>'
    assert digest(page + one) == digest(page + one.replace("3 s", "4 s"))
    assert digest(page + one) != digest(page + one.replace("00Z", "01Z"))
