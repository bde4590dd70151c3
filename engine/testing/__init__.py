"""Testing kit: fast runs of a schedule's windows, fakes of steps, and replay of histories.

See ``docs/testing.md``. It is not for production, and no other package imports it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.lazy import lazy_exports

if TYPE_CHECKING:
    from engine.testing.fake_context import ContinuedAsNew, FakeContext, ResultUnreadable, fire_for
    from engine.testing.fakes import Fake, fail_once, fail_times, fake
    from engine.testing.runs import RunUnderTest, assert_replayable, run_workflow, running_workflow
    from engine.testing.schedules import assert_windows_settled, run_schedule
    from engine.testing.server import DevServer, FrozenClock, dev_server
    from engine.testing.worker import FireResult, RunResult
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "fake_context": "ContinuedAsNew FakeContext ResultUnreadable fire_for",
            "fakes": "Fake fail_once fail_times fake",
            "runs": "RunUnderTest assert_replayable run_workflow running_workflow",
            "schedules": "assert_windows_settled run_schedule",
            "server": "DevServer FrozenClock dev_server",
            "worker": "FireResult RunResult",
        },
    )

__all__ = [
    "ContinuedAsNew",
    "DevServer",
    "Fake",
    "FakeContext",
    "FireResult",
    "FrozenClock",
    "ResultUnreadable",
    "RunResult",
    "RunUnderTest",
    "assert_replayable",
    "assert_windows_settled",
    "dev_server",
    "fail_once",
    "fail_times",
    "fake",
    "fire_for",
    "run_schedule",
    "run_workflow",
    "running_workflow",
]
