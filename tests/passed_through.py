"""Workflows of tests that a run need not load again.

Temporal's sandbox imports the module of a workflow for each run, here with all the workflows beside
it. ``make test`` lets these modules through, but those whose subject the sandbox is;
``make prove-tests`` does not.
"""

from __future__ import annotations

from temporalio.worker.workflow_sandbox import SandboxRestrictions

from tests.examples import PROVING

_SAMPLES = (
    "carried", "handled", "hopeless", "late", "outside", "resets", "retries", "ruled", "sagas",
    "scopes", "started", "steered", "steps", "together", "undone",
)  # fmt: skip
MODULES = {f"tests.fundamentals.samples.{each}" for each in _SAMPLES}


def pass_through() -> None:
    """Let workers of this process load them once."""
    if not PROVING:
        SandboxRestrictions.default.passthrough_modules.update(MODULES)
