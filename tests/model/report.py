"""What a run of the proof has come to: a proof that reaches nothing proves nothing."""

from __future__ import annotations

from collections import Counter
from typing import Final

REACHED: Final = (
    "started on_time", "started late", "started caught_up", "started manual", "started backfill",
    "started rerun", "completed", "failed", "cancelled", "timed_out",
    "skipped overlap", "skipped paused", "skipped disabled", "skipped retired", "skipped excluded",
    "skipped coalesced", "skipped user", "expired older than the catch-up window",
    "expired beyond catchUp.max", "expired missed, and catchUp is none",
    "expired had passed when it was declared", "rejected no worker", "unvouched may have run",
    "queued", "queued to claimed", "queued to skipped", "claimed to skipped",
    "starting to unvouched",
    "terminated", "started after skipped", "started after lost", "rejected foreign run",
    "alert SCHEDULE_RUN_LOST", "alert SCHEDULE_RUN_FOUND", "alert SCHEDULE_CLOCK_SKEW",
    "began beside others", "promoted beside others", "skipped for several runs",
    "backfill done", "backfill ended", "alert SCHEDULE_BACKFILL_ENDED",
    "commits lost", "restored empty", "commit unknown", "clock set", "audited complete",
)  # fmt: skip
"""Classes, reasons and paths that every run has to come through."""

RARE: Final = ("refused CommitUnknown",)
"""What only the long run is sure to meet: an operator whose commit nobody confirmed."""


def report(rules: Counter[str], seen: Counter[str]) -> str:
    """Return it in lines: how many steps, awaits and runs, and how often each class came to be."""
    head = f"{sum(rules.values())} steps, {seen['await']} awaits, {seen['run']} runs"
    steps = ", ".join(f"{name} {count}" for name, count in sorted(rules.items()))
    lines = [f"{count:8} {name}" for name, count in sorted(seen.items())]
    return "\n".join([head, steps, *lines])
