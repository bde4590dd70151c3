"""What a run of the proof has come to: a proof that reaches nothing proves nothing."""

from __future__ import annotations

from collections import Counter
from typing import Final

REACHED: Final = (
    "started on_time", "started late", "started caught_up", "started manual", "started backfill",
    "completed", "failed", "skipped overlap", "skipped coalesced", "queued", "queued to claimed",
    "commits lost", "clock set", "audited complete",
)  # fmt: skip
"""Classes, reasons and paths that every run has to come through."""

RARE: Final = (
    "cancelled", "timed_out", "terminated", "skipped paused", "skipped user", "skipped disabled",
    "skipped retired", "skipped excluded", "skipped for several runs",
    "expired older than the catch-up window", "expired beyond catchUp.max",
    "expired missed, and catchUp is none", "expired had passed when it was declared",
    "rejected no worker", "rejected foreign run", "unvouched may have run",
    "queued to skipped", "starting to unvouched", "claimed to skipped",
    "started after skipped", "started after lost", "started rerun",
    "began beside others", "promoted beside others", "backfill done", "backfill ended",
    "commit unknown", "refused CommitUnknown", "restored empty",
    "alert SCHEDULE_RUN_LOST", "alert SCHEDULE_RUN_FOUND", "alert SCHEDULE_CLOCK_SKEW",
    "alert SCHEDULE_BACKFILL_ENDED",
)  # fmt: skip
"""What only the long run is sure to meet; of ``make test`` a few examples come to each, or none."""


def report(rules: Counter[str], seen: Counter[str]) -> str:
    """Return it in lines: how many steps, awaits and runs, and how often each class came to be."""
    head = f"{sum(rules.values())} steps, {seen['await']} awaits, {seen['run']} runs"
    steps = ", ".join(f"{name} {count}" for name, count in sorted(rules.items()))
    lines = [f"{count:8} {name}" for name, count in sorted(seen.items())]
    return "\n".join([head, steps, *lines])
