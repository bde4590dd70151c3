"""What becomes of windows that were missed: the catch-up policies.

Every policy answers for the whole span at once, in a number of decisions that depends on ``max``
and not on how many windows were missed.
"""

from __future__ import annotations

from datetime import datetime

from engine.schedules.catch_up import CatchUp
from engine.schedules.decisions import Decision
from engine.schedules.due import TICK, Due

TOO_OLD = "older than the catch-up window"


def catch_up(
    due: Due, policy: CatchUp, after: datetime, until: datetime, *, skipped: str | None = None
) -> tuple[Decision, ...]:
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
        return _leave(due, after, until, skipped)
    oldest = due.oldest(after)
    # Instants have microseconds in PostgreSQL; the window at the very edge still counts, and a
    # run that is spread is only missed once its own moment has passed.
    slack = due.schedule.delay(oldest) if oldest else TICK - TICK
    edge = min(max(after, until - policy.window - slack - TICK), until)
    verdict, reason = ("skipped", skipped) if skipped else ("expired", TOO_OLD)
    expired = due.settle(after, edge, verdict, reason)  # type: ignore[arg-type] # one of two words
    chosen = _latest if policy.policy == "latest" else _all
    return (*expired, *chosen(due, policy, edge, until, skipped))


def _leave(due: Due, after: datetime, until: datetime, skipped: str | None) -> tuple[Decision, ...]:
    """``none``: what is older than ``grace`` is over; the rest is not missed, and starts."""
    if skipped:
        return due.settle_held(after, until, skipped)
    edge = max(after, until - due.schedule.grace - TICK)
    expired = due.settle(after, edge, "expired", "missed, and catchUp is none")
    return (*expired, *due.start_all(edge, until, None))


def _latest(
    due: Due,
    policy: CatchUp,  # noqa: ARG001 - one of a family
    after: datetime,
    until: datetime,
    skipped: str | None,  # noqa: ARG001 - as above
) -> tuple[Decision, ...]:
    """One run for all of them: the newest window."""
    (newest,) = due.newest(after, until, 1) or (None,)
    if newest is None:
        return due.settle(after, until, "skipped", "excluded")
    ran = max((at for at, run in due.known.items() if run and newest < at <= until), default=None)
    into = ran or newest
    bucket = due.schedule.spec.bucket(into)
    coalesced = due.settle(
        after, until if ran else newest - TICK, "skipped", f"coalesced into {bucket}"
    )
    if ran:
        return coalesced  # a newer window than all that was missed has its run already
    mine = [each for each in coalesced if each.reason == f"coalesced into {bucket}"]
    missed = sum(each.windows for each in mine)
    start = due.start(
        newest,
        "caught_up",
        f"caught up for {missed} missed windows" if missed else None,
        missed=missed,
        missed_from=mine[0].window.fire_time if mine else None,
    )
    return (*coalesced, start, *due.settle(newest, until, "skipped", "excluded"))


def _all(
    due: Due, policy: CatchUp, after: datetime, until: datetime, skipped: str | None
) -> tuple[Decision, ...]:
    """A run each, of the newest ``max``, in the order and at the rate the policy says."""
    chosen = sorted(due.newest(after, until, policy.max))
    begin = chosen[0] - TICK if chosen else until
    verdict = "skipped" if skipped else "expired"
    older = due.settle(after, begin, verdict, skipped or f"beyond catchUp.max {policy.max}")  # type: ignore[arg-type] # one of two words
    between = [
        each for each in due.settle(begin, until, "skipped", "") if each.reason
    ]  # excluded windows between those that start
    order = chosen if policy.order == "oldest" else chosen[::-1]
    distance = policy.rate.distance if policy.rate else TICK - TICK
    starts = [
        due.start(at, "caught_up", not_before=due.now + number * distance if number else None)
        for number, at in enumerate(order)
    ]
    return (*older, *between, *starts)
