"""What a run of the proof has come to: a proof that reaches nothing proves nothing."""

from __future__ import annotations

from collections import Counter
from typing import Final

REACHED: Final = (
    "started on_time", "started late", "started caught_up", "started manual", "started backfill",
    "completed", "failed", "cancelled", "timed_out",
    "skipped overlap", "skipped paused", "skipped coalesced", "skipped user",
    "expired older than the catch-up window", "expired beyond catchUp.max",
    "rejected no worker", "unvouched may have run",
    "queued", "queued to claimed", "queued to skipped", "starting to unvouched",
    "started after skipped", "started after lost", "rejected foreign run",
    "alert SCHEDULE_RUN_LOST", "alert SCHEDULE_RUN_FOUND", "alert SCHEDULE_CLOCK_SKEW",
    "began beside others", "promoted beside others",
    "backfill done", "commits lost", "commit unknown", "clock set", "audited complete",
)  # fmt: skip
"""Classes, reasons and paths that every run has to come through."""

RARE: Final = (
    "refused CommitUnknown", "started rerun", "skipped disabled", "skipped retired",
    "skipped excluded", "expired missed, and catchUp is none",
    "expired had passed when it was declared", "claimed to skipped", "terminated",
    "backfill ended", "alert SCHEDULE_BACKFILL_ENDED", "restored empty", "skipped for several runs",
)  # fmt: skip
"""What only the long run is sure to meet; of ``make test`` a few examples come to each, or none."""


def report(rules: Counter[str], seen: Counter[str]) -> str:
    """Return it in lines: how many steps, awaits and runs, and how often each class came to be."""
    head = f"{sum(rules.values())} steps, {seen['await']} awaits, {seen['run']} runs"
    steps = ", ".join(f"{name} {count}" for name, count in sorted(rules.items()))
    lines = [f"{count:8} {name}" for name, count in sorted(seen.items())]
    return "\n".join([head, steps, *lines])
