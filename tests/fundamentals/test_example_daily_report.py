"""``daily-report``: a cron schedule in a timezone, and a page made from the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest

from activities.report_data import Day, DayWanted, borders
from activities.report_page import Report, page
from tests.fundamentals.example_app import ExampleApp, fire
from tests.fundamentals.fire_rows import FireRows

SAO_PAULO = "America/Sao_Paulo"  # three hours behind UTC, all year
TWO_O_CLOCK = datetime(2026, 10, 21, 5, tzinfo=UTC)


@pytest.fixture
def database_url(shared_database_url: str) -> str:
    """A database for all of them: each has its rows in a namespace of its own."""
    return shared_database_url


class Page(HTMLParser):
    """What a reader sees of a page, and which tags it has."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.source = Path(path).read_text()
        self.tags: list[str] = []
        self.words: list[str] = []
        self.addresses: list[str | None] = []
        self.cells: dict[str, list[str]] = {}
        self._head: str | None = None
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        self._head = dict(attrs).get("data-head")

    def handle_data(self, data: str) -> None:
        if self._head:
            self.cells.setdefault(self._head, []).append(data)
        self.words += [data.strip()] if data.strip() else []


def nightly(app: ExampleApp, *args: object):
    window = fire("nightly-report", 1, TWO_O_CLOCK, SAO_PAULO)
    return app.run("daily-report@1", window, *args)


async def test_it_reports_the_local_day_before_its_window(app: ExampleApp, fires: FireRows):
    await fires.add("beat", "2026-10-20T02:59:59Z")  # 23:59:59 of the 19th
    await fires.add("beat", "2026-10-20T03:00:00Z")  # the first moment of the 20th
    await fires.add("beat", "2026-10-21T02:59:59Z", "failed", error="no luck")
    await fires.add("beat", "2026-10-21T03:00:00Z")
    result = await nightly(app, {"format": "html"})
    assert result.date == "2026-10-20"
    assert result.counts == {"completed": 1, "failed": 1}
    assert result.path == str(app.reports / "nightly-report-2026-10-20.html")
    page = Page(result.path)
    assert {"Tuesday, 20 October 2026", "Windows per hour", "beat", "23:59:59"} <= set(page.words)
    assert "no luck" in page.words
    assert {"Punctuality", "40 ms · 40 ms"} <= set(page.words)


async def test_on_a_narrow_page_each_cell_says_its_column_and_no_text_shrinks(
    app: ExampleApp, fires: FireRows
):
    await fires.add("beat", "2026-10-20T12:00:00Z")
    await fires.add("sync", "2026-10-20T12:00:00Z", "failed", error="no luck")
    page = Page((await nightly(app)).path)
    assert page.cells["windows"] == ["1", "1"]
    assert page.cells["failed"] == ["1", "·"]
    assert page.cells["times"] == ["1"]
    assert "content: attr(data-head)" in page.source
    assert "svg" in page.tags
    assert "viewBox" not in page.source, "it would scale the text with the drawing"


@pytest.mark.parametrize(
    ("timezone", "as_of", "sentence"),
    [
        ("UTC", "2026-10-20T07:10Z", "2026-10-20 00:00 to 07:10 UTC"),
        ("UTC", "2026-10-21T00:03Z", "2026-10-20 00:00 to 2026-10-21 00:00 UTC"),
        (SAO_PAULO, "2026-10-20T07:10Z", "America/Sao_Paulo · 2026-10-20 03:00 to 07:10 UTC"),
    ],
)
def test_it_says_which_time_it_covers_and_so_far_ends_now(timezone, as_of, sentence):
    start, end = borders(DayWanted(datetime(2026, 10, 20, 12, tzinfo=UTC), timezone, before=False))
    read = datetime.fromisoformat(as_of)
    day = Day("2026-10-20", timezone, start, end, read, [], {}, [], 0, [])
    assert f"<p>{sentence}</p>" in page(Report("nightly-report", day))


async def test_it_says_how_many_runs_no_lag_counts(app: ExampleApp, fires: FireRows):
    await fires.add("beat", "2026-10-20T12:00:00Z")
    await fires.add("sync", "2026-10-20T12:00:00Z", timing="late", reason="first sight")
    page = Page((await nightly(app)).path)
    assert any(words.startswith("1 left out: ") for words in page.words)


async def test_the_page_needs_nothing_from_elsewhere(app: ExampleApp, fires: FireRows):
    await fires.add("beat", "2026-10-20T12:00:00Z")
    page = Page((await nightly(app)).path)
    assert page.addresses == []
    assert "url(" not in page.source
    assert "@import" not in page.source
    assert not {"script", "link", "img", "iframe"} & set(page.tags)


async def test_what_comes_from_outside_is_escaped(app: ExampleApp, fires: FireRows):
    hostile = "</td><script>alert('1')</script>&amp;"
    await fires.add("beat", "2026-10-20T12:00:00Z", "failed", error=hostile)
    page = Page((await nightly(app)).path)
    assert "script" not in page.tags
    assert hostile in " ".join(page.words)


async def test_a_day_without_fires_has_a_page_too(app: ExampleApp, fires: FireRows):
    result = await nightly(app)
    assert result.counts == {}
    page = Page(result.path)
    assert "No fires that day" in page.words
    assert "svg" not in page.tags


async def test_the_same_window_writes_the_same_file_again(app: ExampleApp, fires: FireRows):
    await fires.add("beat", "2026-10-20T12:00:00Z")
    first = await nightly(app)
    await app.rows("DELETE FROM sched.fires WHERE namespace = $1", app.client.namespace)
    window = fire("nightly-report", 2, TWO_O_CLOCK, SAO_PAULO)
    second = await app.run("daily-report@1", window)
    assert second.path == first.path
    assert "No fires that day" in Page(second.path).words
    assert app.files() == ["nightly-report-2026-10-20.html"], "nothing half written is left"


async def test_by_hand_it_reports_in_utc_the_day_so_far_or_the_one_before(
    app: ExampleApp, fires: FireRows
):
    now = datetime.now(UTC)
    await fires.add("beat", now.isoformat())
    await fires.add("sync", (now - timedelta(days=1)).isoformat())
    today = await app.run("daily-report@1", None, {"day": "today"})
    assert today.path == str(app.reports / f"daily-report-{now:%Y-%m-%d}.html")
    page = Page(today.path)
    assert "beat" in page.words
    assert "sync" not in page.words
    assert f"{now:%A}, {now.day} {now:%B %Y}, so far" in page.words


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"format": "pdf"}, "format is 'pdf'; this report is written as html"),
        ({"day": "tomorrow"}, "day is 'tomorrow'; write yesterday or today"),
    ],
)
async def test_an_input_it_does_not_know_is_refused(app: ExampleApp, options, sentence):
    cause = await app.failure("daily-report@1", fire("nightly-report"), options)
    assert sentence in str(cause)


async def test_without_a_ledger_it_says_so(app: ExampleApp, empty_database_url, monkeypatch):
    monkeypatch.setenv("SCHED_DATABASE_URL", empty_database_url)
    cause = await app.failure("daily-report@1", fire("nightly-report"))
    assert "this database has no ledger in schema 'sched'" in str(cause)
