"""What becomes of windows that were missed: the catch-up policies.

Every policy answers for the whole span at once, in the order of time, and in a number of decisions
that depends on ``max`` and the days off, not on how many windows were missed. In which order and
how fast the starts among them go is the planner's to say. The table: docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from engine.schedules.catch_up import CatchUp
from engine.schedules.decisions import Decision, Verdict
from engine.schedules.due import Due
from engine.schedules.instants import TICK

TOO_OLD = "older than the catch-up window"
NOT_WANTED = "missed, and catchUp is none"
COALESCED = "coalesced into"


def catch_up(
    due: Due, policy: CatchUp, after: datetime, until: datetime, *, skipped: str | None = None
) -> Iterator[Decision]:
    """Decide every window in ``(after, until]`` by ``policy``.

    Args:
        due: the schedule, and the moment from which ages are counted.
        policy: what to do.
        after: where the missed span begins.
        until: where it ends.
        skipped: the windows were skipped for this reason already, by a pause for instance: what
            is not caught up stays ``skipped`` for it, and does not expire.
    """
    if policy.policy == "none":
        yield from _leave(due, after, until, skipped)
        return
    # What is younger than grace starts in any case, and never expires.
    edge = _edge(due, after, until, max(policy.window, due.schedule.grace))
    verdict: Verdict = "skipped" if skipped else "expired"
    yield from due.settle(after, edge, verdict, skipped or TOO_OLD)
    if policy.policy == "latest":
        yield from _latest(due, edge, until)
        return
    chosen = due.newest(edge, until, policy.max)
    begin = chosen[-1] - TICK if chosen else until
    yield from due.settle(edge, begin, verdict, skipped or f"beyond catchUp.max {policy.max}")
    yield from due.start_all(begin, until, "caught_up")


def _edge(due: Due, after: datetime, until: datetime, age: timedelta) -> datetime:
    """Return where within the span windows are not older than ``age`` any more."""
    # A run that is spread is only missed once its own moment has passed. Instants have
    # microseconds, and the window at the very edge still counts.
    oldest = due.oldest(after)
    slack = due.schedule.delay(oldest) if oldest else timedelta(0)
    return min(max(after, due.now - age - slack - TICK), until)


def _leave(due: Due, after: datetime, until: datetime, skipped: str | None) -> Iterator[Decision]:
    """``none``: what is older than ``grace`` is over; the rest is not missed, and starts."""
    if skipped:
        yield from due.settle_held(after, until, skipped)
        return
    edge = _edge(due, after, until, due.schedule.grace)
    yield from due.settle(after, edge, "expired", NOT_WANTED)
    yield from due.start_all(edge, until)


def _latest(due: Due, after: datetime, until: datetime) -> Iterator[Decision]:
    """One run for all of them: the newest window."""
    newest = next(iter(due.newest(after, until, 1)), None)
    if newest is None:
        yield from due.settle(after, until, "skipped", "excluded")
        return
    ran = max((at for at, run in due.known.items() if run and newest < at <= until), default=None)
    reason = f"{COALESCED} {due.schedule.spec.bucket(ran or newest)}"
    if ran:  # a newer window than all that was missed has its run already
        yield from due.settle(after, until, "skipped", reason)
        return
    coalesced = [*due.settle(after, newest - TICK, "skipped", reason)]
    yield from coalesced
    mine = [each for each in coalesced if each.reason == reason]
    missed = sum(each.windows for each in mine)
    yield due.start(
        newest, "caught_up", f"caught up for {missed} missed windows" if missed else None,
        missed=missed, missed_from=mine[0].window.fire_time if mine else None,
    )  # fmt: skip
    yield from due.settle(newest, until, "skipped", "excluded")
