"""The page for operators in Chromium: every view on a desk and on a phone, and what is done there.

One browser and one server for all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from engine.ledger.fires import Outcome
from tests.acceptance.browser import PageServer, chromium, needs_chromium, page_server
from tests.examples import PROVING
from tests.page_story import IMAGE, SCRIPT, SERVED
from tests.rest import SERVING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

pytestmark = needs_chromium

VIEWS = ["/", "/schedules/payments.settle", "/week", "/dead"]
if PROVING:
    VIEWS += ["/schedules/invoices.reminders", "/workers", "/alerts", "/signin"]
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
UI = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def server(shared_database_url: str) -> Iterator[PageServer]:
    with page_server(shared_database_url, f"page-{uuid4().hex}", ui_url=UI) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@contextmanager
def opened(browser: Browser, server: PageServer, **options: Any) -> Iterator[Page]:
    """Open a page that fails the test when it reports an error, or what it loads is refused."""
    from playwright.sync_api import expect

    expect.set_options(timeout=10_000)
    context = browser.new_context(**{"viewport": DESK, **options}, base_url=server.address)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))

    def refuse(dialog: Dialog) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", refuse)
    page.on("console", lambda each: wrong.append(each.text) if each.type == "error" else None)
    yield page
    context.close()
    assert wrong == []


@pytest.fixture
def page(browser: Browser, server: PageServer) -> Iterator[Page]:
    with opened(browser, server) as found:
        yield found


def live(page: Page, path: str) -> None:
    """Go to a view, and wait until it follows the ledger."""
    from playwright.sync_api import expect

    page.goto(path)
    expect(page.locator("#pulse")).to_have_text("live")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {"viewport": DESK, "color_scheme": "light"},
            id="desk and light",
            marks=pytest.mark.prove,
        ),
        pytest.param(
            {"viewport": PHONE, "color_scheme": "dark", "has_touch": True}, id="phone and dark"
        ),
    ],
)
def test_every_view_fits_its_screen_and_has_no_serious_fault_of_accessibility(
    browser, server, options
):
    from axe_playwright_python.sync_playwright import Axe

    axe = Axe()
    with opened(browser, server, bypass_csp=True, **options) as page:
        for path in VIEWS:
            page.goto(path)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, f"{path} is {wide} px too wide"
            found = axe.run(page).response["violations"]
            serious = [
                (each["id"], [node["html"] for node in each["nodes"]][:3])
                for each in found
                if each["impact"] in {"serious", "critical"}
            ]
            assert serious == [], path


def test_a_pause_with_its_reason_by_keyboard_alone(page, server):
    from playwright.sync_api import expect

    live(page, "/?key=prices")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    for _ in range(6):  # key, state, status, filter, then the schedule
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "prices.import":
            break
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("prices.import")
    page.get_by_text("Pause", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Reason").locator("visible=true")).to_be_focused()
    page.keyboard.type("supplier is down")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="is paused")).to_be_visible()
    expect(page.locator("#facts")).to_contain_text("supplier is down")
    expect(page.locator("#log")).to_contain_text("pause")
    row = server.run(server.service.schedule("prices.import"))
    assert row.pause.reason == "supplier is down"


@pytest.mark.prove
def test_a_trigger_leads_to_its_run(page, server):
    from playwright.sync_api import expect

    live(page, "/schedules/report.weekly")
    page.get_by_text("Trigger", exact=True).click()
    page.get_by_label("Reason").locator("visible=true").fill("a customer waits")
    page.get_by_role("button", name="Trigger report.weekly").click()
    said = page.get_by_role("status").filter(has_text="is asked for")
    expect(said.get_by_role("link")).to_have_attribute(
        "href",
        re.compile(r"^http://127.0.0.1:9/namespaces/default/workflows/sched%3Areport.weekly"),
    )
    run = page.locator("#windows .run").filter(has_text=":manual:").first
    expect(run).to_be_visible()
    server.run(begin_all(server))
    expect(run.get_by_role("link")).to_have_attribute("href", re.compile(r"/run-one/history$"))


async def begin_all(server: PageServer) -> None:
    """Do what a worker does: take what was asked for, and begin it."""
    serving = SERVING.__class__("story", "default", "sched", frozenset(f"{n}@1" for n in SERVED))
    lease = timedelta(seconds=30)
    claims = await server.ledger.take_over(serving, limit=100, lease=lease)
    now = datetime.now(UTC)
    outcomes = [
        Outcome(claim.fire_id, claim.token, "started", claim.timing, "run-one", now)
        for claim in claims
    ]
    await server.ledger.settle(outcomes)


@pytest.mark.prove
def test_a_backfill_is_previewed_and_then_started(page, server):
    from playwright.sync_api import expect

    page.goto("/schedules/invoices.nightly")
    page.get_by_text("Backfill", exact=True).click()
    page.get_by_label("From (UTC)").fill("2026-01-01T00:00")
    page.get_by_label("To (UTC)").fill("2026-01-11T00:00")
    page.get_by_role("button", name="Preview the backfill").click()
    expect(page.locator(".lead")).to_contain_text("10 windows. 10 runs would start")
    expect(page.get_by_role("row").filter(has_text="undeclared")).to_contain_text("10")
    assert server.run(server.service.backfills("invoices.nightly")) == []
    page.get_by_label("Reason").fill("the year was closed anew")
    page.get_by_role("button", name="Start 10 runs").click()
    expect(page.get_by_role("status").filter(has_text="is requested: 10 runs")).to_be_visible()
    (row,) = server.run(server.service.backfills("invoices.nightly"))
    assert (row.windows, row.reason) == (10, "the year was closed anew")


@pytest.mark.prove
def test_a_dead_letter_is_run_again(page, server):
    from playwright.sync_api import expect

    page.goto("/dead")
    letter = page.locator(".letter").first
    name = letter.get_attribute("aria-label")
    letter.get_by_label("Reason").fill("the gateway is back")
    letter.get_by_role("button", name="Run again").click()
    expect(page.get_by_role("status").filter(has_text="is asked for")).to_be_visible()
    page.goto("/dead")
    expect(page.get_by_label(name, exact=True)).to_have_count(0)
    assert server.run(server.service.fire(f"{name}:rerun:1")) is not None


def test_a_view_follows_the_ledger_and_keeps_what_is_being_typed(page, server):
    from playwright.sync_api import expect

    live(page, "/schedules/cache.warm")
    page.get_by_text("Pause", exact=True).click()
    typed = page.get_by_label("Reason").locator("visible=true")
    typed.fill("half a sen")
    server.run(server.service.pause("cache.warm", reason="by another operator"))
    expect(page.locator("#facts")).to_contain_text("by another operator")
    expect(typed).to_have_value("half a sen")
    expect(typed).to_be_focused()
    assert page.locator("#facts time[data-ago]").first.text_content()


@pytest.mark.prove
def test_attacks_are_read_and_not_run(page):
    from playwright.sync_api import expect

    for path, text in [
        ("/schedules/invoices.reminders", IMAGE),
        ("/schedules/ledger.reconcile", SCRIPT),
        ("/schedules/payments.settle?status=failed", "ValueError: unexpected row <script>"),
    ]:
        page.goto(path)
        expect(page.get_by_text(text).first).to_be_visible()
        assert "stolen" not in page.title()
        assert page.locator("img").count() == 0


@pytest.mark.prove
def test_a_sign_in_leads_to_where_one_wanted_to_go(browser, shared_database_url):
    from playwright.sync_api import expect

    with page_server(shared_database_url, f"page-{uuid4().hex}", open_door=False) as server:
        made = server.run(server.service.create_token("ann", scope="read"))
        with opened(browser, server) as page:
            page.goto("/week?key=orders")
            expect(page).to_have_url(re.compile("/signin"))
            page.keyboard.type(made.secret)
            page.keyboard.press("Enter")
            expect(page).to_have_url(re.compile(r"/week\?key=orders$"))
            expect(page.locator(".who")).to_contain_text("ann · read")
            assert page.evaluate("document.cookie") == ""
            page.get_by_role("button", name="Sign out").click()
            expect(page).to_have_url(re.compile("/signin$"))
