"""Whatever happens, in whichever order: every window is accounted for.

Several replicas of the real code share a ledger in PostgreSQL and a Temporal server in memory, and
hypothesis says what comes next. ``make prove-account`` goes on for longer.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from hypothesis.stateful import run_state_machine_as_test

from tests.bridge import Bridge
from tests.model.base import RULES, SEEN
from tests.model.machine import Machine
from tests.model.report import RARE, REACHED, report

FIXED = "SCHED_PROVE_EXAMPLES" not in os.environ
EXAMPLES = int(os.environ.get("SCHED_PROVE_EXAMPLES", "3"))
STEPS = 40 if FIXED else 50


@pytest.mark.slow
@pytest.mark.timeout(1800 if FIXED else 0)  # of a machine that does other things too
def test_every_window_is_accounted_for_whatever_happens(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Machine, "bridge", bridge, raising=False)
    # Hypothesis also tries the numbers that stand in whatever modules happen to be loaded: what
    # this process ran before would decide what comes next here.
    monkeypatch.setattr(providers, "_get_local_constants", Constants)
    providers.CONSTANTS_CACHE.cache.clear()
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            derandomize=FIXED,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(report(RULES, SEEN))  # noqa: T201 - what a person wants to see with -s
    if FIXED:
        assert sum(RULES.values()) >= 105
    wanted = REACHED if FIXED else (*REACHED, *RARE)
    assert not [name for name in wanted if not SEEN[name]]
