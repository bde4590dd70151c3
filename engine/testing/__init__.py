"""The testing kit: a schedule's windows run in a second, steps are replaced, histories replayed.

See ``docs/testing.md``. Nothing here is for production, and nothing else imports it.

===============  ==========================================================
clock.py         ``FrozenClock``: a time that only the test moves
server.py        ``dev_server``: a Temporal server for tests, which skips waits
schedules.py     ``run_schedule``: the windows of a schedule file
runs.py          ``run_workflow``: one run by hand, or for a given window
results.py       what became of them
fakes.py         ``fake``, ``fail_once``, ``fail_times``: steps replaced for one test
settled.py       ``assert_windows_settled``
replay.py        ``assert_replayable``
stand_in.py      ``FakeContext``: a ``ctx`` for tests without any server
attempts.py      one attempt of a step, as ``FakeContext`` makes it
failing.py       how a step or child that failed looks to the workflow
fires.py         ``fire_for``: the window that a schedule would hand to a run
bench.py         a worker on a server for tests, and the ends of its runs
playing.py       the real planner in the test's time, behind ``run_schedule``
===============  ==========================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.doors import door

if TYPE_CHECKING:
    from engine.testing.clock import FrozenClock
    from engine.testing.fakes import Fake, fail_once, fail_times, fake
    from engine.testing.fires import fire_for
    from engine.testing.replay import assert_replayable
    from engine.testing.results import FireResult, RunResult
    from engine.testing.runs import run_workflow
    from engine.testing.schedules import run_schedule
    from engine.testing.server import DevServer, dev_server
    from engine.testing.settled import assert_windows_settled
    from engine.testing.stand_in import FakeContext
else:
    __getattr__ = door(
        __name__,
        {
            "DevServer": "engine.testing.server",
            "Fake": "engine.testing.fakes",
            "FakeContext": "engine.testing.stand_in",
            "FireResult": "engine.testing.results",
            "FrozenClock": "engine.testing.clock",
            "RunResult": "engine.testing.results",
            "assert_replayable": "engine.testing.replay",
            "assert_windows_settled": "engine.testing.settled",
            "dev_server": "engine.testing.server",
            "fail_once": "engine.testing.fakes",
            "fail_times": "engine.testing.fakes",
            "fake": "engine.testing.fakes",
            "fire_for": "engine.testing.fires",
            "run_schedule": "engine.testing.schedules",
            "run_workflow": "engine.testing.runs",
        },
    )

__all__ = [
    "DevServer",
    "Fake",
    "FakeContext",
    "FireResult",
    "FrozenClock",
    "RunResult",
    "assert_replayable",
    "assert_windows_settled",
    "dev_server",
    "fail_once",
    "fail_times",
    "fake",
    "fire_for",
    "run_schedule",
    "run_workflow",
]
