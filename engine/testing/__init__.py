"""Testing kit: fast runs of a schedule's windows, fakes of steps, and replay of histories.

See ``docs/testing.md``. It is not for production, and no other package imports it.

===============  ==============================================
schedules.py     Runs of the windows of a schedule file
runs.py          Runs of one workflow, and replay of histories
worker.py        The worker of the testing kit, and its results
server.py        A Temporal server and a clock for tests
fakes.py         Fakes of steps
fake_context.py  A workflow context without a server
===============  ==============================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.lazy import lazy_exports

if TYPE_CHECKING:
    from engine.testing.fake_context import FakeContext, fire_for
    from engine.testing.fakes import Fake, fail_once, fail_times, fake
    from engine.testing.runs import assert_replayable, run_workflow
    from engine.testing.schedules import assert_windows_settled, run_schedule
    from engine.testing.server import DevServer, FrozenClock, dev_server
    from engine.testing.worker import FireResult, RunResult
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "DevServer": "engine.testing.server",
            "Fake": "engine.testing.fakes",
            "FakeContext": "engine.testing.fake_context",
            "FireResult": "engine.testing.worker",
            "FrozenClock": "engine.testing.server",
            "RunResult": "engine.testing.worker",
            "assert_replayable": "engine.testing.runs",
            "assert_windows_settled": "engine.testing.schedules",
            "dev_server": "engine.testing.server",
            "fail_once": "engine.testing.fakes",
            "fail_times": "engine.testing.fakes",
            "fake": "engine.testing.fakes",
            "fire_for": "engine.testing.fake_context",
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
