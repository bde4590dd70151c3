"""Page: the views of operators at 10,000 schedules, beside a page of the API.

**Contestants.** *API*: ``GET /api/v1/schedules`` with 50 rows. *Page*: each view of the page for
operators, as HTML. Both from one ``sched api`` in a process of its own, with a token, on one
connection that is kept open.

**What is measured.** The time until the whole answer is there, in milliseconds, which is at least
the time to its first byte; and its size. The ledger has 10,000 schedules, each with its last 20
windows, and 200 dead letters.

**Fairness.** Every view was read once before, so that definitions are parsed and templates
compiled. The list is read page by page, each view else again and again; contestants take turns.
The week counts all windows beside the requests: its answers shorter than that count show what there
is. Target: 300 ms and 200 KB for every view; the list at most 10 times the API.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from html import unescape

from benchmarks.api import served
from benchmarks.arena import connected, postgres
from benchmarks.crowd import fill
from benchmarks.report import Measured, Row
from benchmarks.spread import Spread
from engine.ledger import Ledger
from engine.service import ScheduleService
from tests.postgres import Postgres

SCHEDULES, WINDOWS, LETTERS, ROUNDS, ROUNDS_QUICK = 10_000, 20, 200, 40, 5
MOST_MS, MOST_BYTES = 300, 200_000
_FIRES = """
INSERT INTO fires (namespace, project, key, series, bucket, fire_time, last_fire_time,
    definition_version, workflow_id, workflow_type, task_queue, status, timing, run_id, started_at,
    closed_at, error, dealt_at, followed_at, counted)
SELECT 'default', 'default', 'idle-' || k, 1, n, at, at, 1, 'sched:idle-' || k || ':' || n,
    'bare@1', 'sched', status, 'on_time', 'run-' || k || '-' || n, at, at + interval '3 s',
    CASE status WHEN 'failed' THEN 'ValueError: no money' END,
    CASE WHEN k > $3 OR status <> 'failed' THEN at END, at, 'reported'
FROM generate_series(1, $1::int) AS k, generate_series(1, $2::int) AS n,
    LATERAL (SELECT date_trunc('hour', now()) - n * interval '1 h' AS at,
                    CASE n WHEN 5 THEN 'failed' ELSE 'completed' END AS status) AS f
"""
VIEWS = {
    "schedules": "/", "schedules, filtered": "/?key=77&state=active", "week": "/week",
    "one schedule": "/schedules/idle-77", "dead letters": "/dead", "workers": "/workers",
    "alerts": "/alerts",
}  # fmt: skip
_API = "/api/v1/schedules?limit=50"


async def run(*, quick: bool = False) -> Measured:
    """Measure; takes about a minute."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    sizes: defaultdict[str, int] = defaultdict(int)
    async with postgres() as server:
        url = await Postgres(server.url_of("postgres")).create_database("page")
        ledger = await Ledger.connect(url, connections=2)
        async with connected(url) as connection:
            await fill(ledger, connection, SCHEDULES)
            await connection.execute(_FIRES, SCHEDULES - 1, WINDOWS, LETTERS)
            await connection.execute("ANALYZE fires")
        service = ScheduleService(ledger, actor="benchmark")
        token = (await service.create_token("benchmark", scope="operate")).secret
        async with served(url, token) as ask:
            places = {"API": _API, **VIEWS}
            for number in range((ROUNDS_QUICK if quick else ROUNDS) + 1):
                for name, path in places.items():
                    began = time.perf_counter()
                    body = await ask(path)
                    taken = (time.perf_counter() - began) * 1000
                    sizes[name] = max(sizes[name], len(body.encode()))
                    if number:
                        times[name].append(round(taken, 3))
                    places[name] = _next(name, body) or (_API if name == "API" else VIEWS[name])
        await ledger.close()
    rows = [_row(name, times, sizes) for name in VIEWS]
    return Measured("page", rows, {f"{name}, ms": found for name, found in times.items()})


def _next(name: str, body: str) -> str | None:
    """Return the place of the next page of the list."""
    if name == "API":
        cursor = json.loads(body)["nextCursor"]
        return f"{_API}&cursor={cursor}" if cursor else None
    found = re.search(r'<a href="([^"]*)" rel="next">Next', body) if name == "schedules" else None
    return unescape(found[1]) if found else None


def _row(name: str, times: dict[str, list[float]], sizes: dict[str, int]) -> Row:
    found, size = Spread.of(times[name]), sizes[name]
    assert found.p95 <= MOST_MS, f"{name} takes {found.p95:.0f} ms"
    assert size <= MOST_BYTES, f"{name} has {size} bytes"
    return {
        "view": name,
        "median ms": round(found.p50, 1),
        "p95 ms": round(found.p95, 1),
        "view / API": round(found.p50 / Spread.of(times["API"]).p50, 1),
        "KB": round(size / 1000, 1),
    }
