"""Overlap policies: decisions on windows that are due while older runs are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from engine.schedules.planner.decisions import (
    ALL_READ,
    FIFO,
    READ_AHEAD,
    REASON,
    Decision,
    Dependencies,
    Move,
    OpenFire,
    Unread,
    is_pending,
    ready_at,
    unmet,
)
from engine.schedules.terms import LOOKS_AT_ONCE, STOPS, Overlap, Reason, ReasonCode, Rule, Stop

_BLOCKED_BY: Final = "overlap: "

# --- confirmed open runs ---


def is_confirmed_open(fire: OpenFire, at: datetime) -> bool:
    """Return whether ``fire`` certainly blocked a start at ``at``.

    A fire whose send has not begun certainly does. A fire that is being sent proves nothing: the
    send may be in flight, or its owner died and the run closed long ago.
    """
    if fire.status == "started":
        return fire.open_at is not None and fire.open_at >= at
    return fire.status != "starting"


def awaits_look(fire: OpenFire) -> bool:
    """Return whether ``fire`` waits only for a look at the runs that may block it."""
    return fire.status == "queued" and fire.overlap == "skip" and not fire.awaited


def looked_at(fires: Iterable[OpenFire]) -> tuple[OpenFire, ...]:
    """Return the started fires, each once; a look cannot prove anything about a pending send."""
    return tuple({fire.fire_id: fire for fire in fires if fire.status == "started"}.values())


def ahead(
    fires: Sequence[OpenFire],
    overlap: Overlap,
    places: int,
    *,
    running: int = 0,
    waiting: int = 0,
    pending: int = 0,
) -> tuple[tuple[OpenFire, ...], Unread]:
    """Return the open fires of a key that a plan reads, and how many more there are.

    Args:
        fires: the fires found, in the order they were written; possibly not all.
        overlap: the policy of the schedule.
        places: how many of its runs may be open at once.
        running: how many run in all, counted up to ``places``.
        waiting: how many are queued only for a place.
        pending: how many are queued for windows of other schedules.
    """
    most = min(places, READ_AHEAD) + READ_AHEAD
    room = {"running": most, "waiting": most, "pending": len(fires)}
    if overlap in STOPS:
        room["running"] = len(fires)  # all of them have to be stopped
    read = []
    left = {"running": running, "waiting": waiting, "pending": pending}
    for fire in fires:
        kind = "running"
        if fire.status == "queued":
            kind = "pending" if fire.awaited else "waiting"
        in_line = kind != "running" and overlap in FIFO
        place = "waiting" if in_line else kind
        if room[place] > 0:
            room[place] -= 1
            left[kind] -= 1
            read.append(fire)
    counted = {kind: max(0, count) for kind, count in left.items()}
    if overlap in FIFO:
        return tuple(read), Unread(counted["running"], counted["waiting"] + counted["pending"])
    return tuple(read), Unread(**counted)


def oldest_unconfirmed(looks: Sequence[OpenFire]) -> tuple[OpenFire, ...]:
    """Return the runs to look at now: at most ``LOOKS_AT_ONCE``, the longest unproven first.

    The next plan looks at the others; all proofs age alike, so each run has its turn.
    """
    if len(looks) <= LOOKS_AT_ONCE:
        return tuple(looks)
    never = [each for each in looks if each.open_at is None]
    seen = sorted((each.open_at, each.fire_id, each) for each in looks if each.open_at is not None)
    return tuple([*never, *(each for _, _, each in seen)][:LOOKS_AT_ONCE])


# --- overlap policies ---
# A key has one place, or ``maxConcurrentRuns``. Every open run takes one, whether of an older
# window however far back, a manual run or a rerun; so does a fire that is claimed, being started or
# queued. Only a run that was proven open when the window opened, or later, may cost the window its
# start. If the last proof is older, the run is looked at first, and nothing is decided until then.
# Under ``skip`` a run that is being started proves nothing, so nothing is decided until its outcome
# is known. A request, and a window whose definition ends, cannot stay undecided: they are queued
# and decided after a look (``awaits_look``). The table is in docs/decisions.md.
#
# Overlap of a window that waits for other schedules is decided once their runs have ended, as if
# the window opened then.


@dataclass(frozen=True, slots=True)
class Resolved:
    """Decisions after overlap; see ``Plan`` for the fields.

    If starts are ``withheld``, nothing is decided until ``looks`` are answered or the outcome of a
    send is known. ``unsettled``: a waiting fire has to be decided again then. ``more``: every fire
    that was read has left the line, so the fires behind them can be read at once.
    """

    decisions: tuple[Decision, ...]
    moves: tuple[Move, ...] = ()
    looks: tuple[OpenFire, ...] = ()
    withheld: bool = False
    unsettled: bool = False
    more: bool = False


def resolve(
    policy: Overlap,
    decisions: Sequence[Decision],
    open_fires: Sequence[OpenFire],
    *,
    places: int = 1,
    most_queued: int,
    named: Callable[[Decision], str],
    final: bool = False,
    standing: Overlap | None = None,
    rules: tuple[Rule, ...] = (),
    unread: Unread = ALL_READ,
) -> Resolved:
    """Apply ``policy`` to the starts among ``decisions``, and promote waiting fires.

    Args:
        policy: of the schedule, or of the one run that is requested.
        decisions: the starts among them are considered in this order, except under a policy that
            stops the previous run: then in the order of time, so that the newest window stays.
        open_fires: of the key, in the order they were written.
        places: how many runs may be open at once, unless the policy is ``allow``. A policy that
            stops the previous run has one.
        most_queued: with ``queue``, how many may wait; the others are skipped.
        named: returns the workflow id of a start.
        final: nothing can be withheld; an undecidable start is queued and decided later.
        standing: the schedule's own policy, where ``policy`` is that of one run alone; windows
            that already wait keep to it.
        rules: the parents that every start has to wait for first.
        unread: how many more fires are open behind ``open_fires``.
    """
    most = most_queued if policy == "queue" else 1
    line = _Line(policy, places, most, named, standing or policy, unread)
    line.join(open_fires)
    line.promote()
    line.release(final=final)
    if rules:
        # Under any policy a window waits for its parents in the line.
        line.most_queued = 1 if policy == "queue_one" else most_queued
        for decision in decisions:
            line.wait(decision, rules)
        line.promote_behind()
        return line.resolved()
    starts = [each.window.fire_time for each in decisions if each.verdict == "claimed"]
    if policy in STOPS and starts and unread.waiting and line.waiting and not final:
        # A start that replaces all waiting fires gives up those read, then reads the rest.
        line.give_up_waiting(max(decisions, key=lambda each: each.window.fire_time))
        return replace(line.resolved(), decisions=(), withheld=True, more=True)
    if starts and not final and (looks := line.doubts(max(starts), len(starts))):
        looks = looked_at((*line.looks, *looks))
        return Resolved((), tuple(line.moves), oldest_unconfirmed(looks), withheld=True)
    if policy in STOPS:
        decisions = sorted(decisions, key=lambda each: each.window.fire_time)
    for decision in decisions:
        if decision.verdict == "claimed":
            line.add(decision)
        else:
            line.decided.append(decision)
    line.promote_behind()
    return line.resolved()


@dataclass
class _Line:
    """Open runs of one key and the fires that wait behind them, while a plan is made."""

    policy: Overlap
    places: int
    most_queued: int
    named: Callable[[Decision], str]
    standing: Overlap
    unread: Unread = ALL_READ
    running: list[OpenFire] = field(default_factory=list)
    waiting: list[OpenFire] = field(default_factory=list)
    decided: list[Decision] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    pending: list[OpenFire] = field(default_factory=list)
    """Fires that wait for other schedules and block no start."""
    behind: list[OpenFire] = field(default_factory=list)
    """Fires laid by a backfill that have not begun; all others pass them."""
    looks: list[OpenFire] = field(default_factory=list)
    unsettled: bool = False
    """Whether a waiting fire has to be decided again soon."""
    mine: list[int] = field(default_factory=list)
    """Indexes in ``decided`` of this plan's starts and queued windows."""

    @property
    def open(self) -> int:
        """Number of open runs; exact at least up to the number of places."""
        return len(self.running) + self.unread.running

    @property
    def queued(self) -> int:
        """Number of fires that wait behind the open runs."""
        return len(self.waiting) + self.unread.waiting

    def resolved(self) -> Resolved:
        unread = self.unread.waiting + self.unread.pending
        return Resolved(
            tuple(self.decided),
            tuple(self.moves),
            oldest_unconfirmed(looked_at(self.looks)),
            unsettled=self.unsettled,
            more=unread > 0 and not (self.waiting or self.pending or self.behind),
        )

    def join(self, fires: Iterable[OpenFire]) -> None:
        for fire in fires:
            if fire.status != "queued":
                self.running.append(fire)
            elif fire.timing == "backfill":
                self.behind.append(fire)
            elif why := unmet(fire.awaited):
                self.moves.append(Move(fire, "skip", why))
            elif is_pending(fire.awaited) and self.standing not in FIFO:
                self.pending.append(fire)
            else:
                self.waiting.append(fire)

    def promote(self) -> None:
        """Start waiting fires in their order, as long as a place is free."""
        blocked = False
        for fire in [*self.waiting]:
            own = fire.overlap or self.standing
            if is_pending(fire.awaited):
                blocked = True
            elif awaits_look(fire):
                if not (blocked or self.open >= self.places):
                    self._start(fire)  # else `release` decides; those behind it are blocked too
            elif fire.awaited and own not in FIFO and own != "allow":
                continue  # `release` decides
            elif own == "allow" or not (blocked or self.open >= self.places):
                self._start(fire)
            else:
                blocked = True
                if fire.awaited:
                    self.moves.append(Move(fire, "release"))

    def promote_behind(self) -> None:
        """Start fires laid by a backfill, on places that no other fire needs.

        If more of them lead the line than are read, the fires behind them are unknown; the backfill
        continues until those can be read.
        """
        for fire in sorted(self.behind, key=lambda each: each.fire_time):
            own = fire.overlap or self.standing
            free = self.open + len(self.mine) < self.places and not self.waiting
            if own == "allow" or free:
                self.moves.append(Move(fire, "start"))
                self.behind.remove(fire)
                self.running.append(fire)

    def _start(self, fire: OpenFire) -> None:
        self.moves.append(Move(fire, "start"))
        self.waiting.remove(fire)
        self.running.append(fire)

    def release(self, *, final: bool) -> None:
        """Decide fires that wait for a look, and fires outside a line whose parents have ended."""
        ready = [
            fire
            for fire in self.waiting
            if awaits_look(fire) or (fire.awaited and (fire.overlap or self.standing) not in FIFO)
        ]
        for fire in sorted(ready, key=lambda each: each.fire_time):
            if fire not in self.waiting:
                continue  # a newer one took its place
            self._release(fire, fire.overlap or self.standing, final=final)

    def _release(self, fire: OpenFire, own: Overlap, *, final: bool) -> None:
        at = ready_at(fire.awaited, fire.fire_time)
        there = len(self.running) + len(self._before(fire))
        doubtful = self._doubtful(at, own)
        is_sure = not doubtful if own in STOPS else there - len(doubtful) >= self.places
        if own == "skip" and there + self.unread.running < self.places:
            self._start(fire)
        elif doubtful and not is_sure:
            # No decision is needed even if a definition ends: the fire exists and waits.
            self.looks += [] if final else doubtful
            self.unsettled = True
        elif own == "skip":
            self.waiting.remove(fire)
            self.moves.append(Move(fire, "skip", self._blocked(at)))
        else:
            self.waiting.remove(fire)
            given_up = _replaced_by(fire.workflow_id)
            others = (*self.waiting, *self.pending)
            older = [each for each in others if each.fire_time <= fire.fire_time]
            newer = [each for each in others if each.fire_time > fire.fire_time]
            self.running = self._end((*self.running, *older), STOPS[own], given_up)
            self.waiting = [each for each in newer if not is_pending(each.awaited)]
            self.pending = [each for each in newer if is_pending(each.awaited)]
            self.waiting.append(fire)
            if self.running:
                self.moves.append(Move(fire, "release"))
            else:
                self._start(fire)

    def _before(self, fire: OpenFire) -> list[OpenFire]:
        """Return the fires in line that a fire waiting for a look would have to wait for."""
        if not awaits_look(fire):
            return []
        before = self.waiting[: self.waiting.index(fire)]
        return [each for each in before if not awaits_look(each)]

    def _doubtful(self, at: datetime, policy: Overlap) -> list[OpenFire]:
        """Return the running fires that did not certainly block a start at ``at``.

        Only ``skip`` doubts a fire that is being started: no window is given up for it. Other
        policies stop it, or wait for it, like any other run, which costs no window its start.
        """
        doubtful = [each for each in self.running if not is_confirmed_open(each, at)]
        return doubtful if policy == "skip" else [*looked_at(doubtful)]

    def wait(self, decision: Decision, rules: tuple[Rule, ...]) -> None:
        """Queue a start until its parents have ended, if there is room."""
        if decision.verdict != "claimed":
            self.decided.append(decision)
            return
        waiting = self.queued + len(self.pending) + self.unread.pending + len(self.mine)
        if waiting >= self.most_queued:
            full = self._full() if self.policy in FIFO else self._full(REASON, REASON)
            self.decided.append(_skipped(decision, full))
            return
        awaits = Dependencies(rules, decision.reason)
        self._put(replace(decision, verdict="queued", reason=awaits.waiting_reason, awaits=awaits))

    def doubts(self, newest: datetime, starts: int) -> tuple[OpenFire, ...]:
        """Return the fires to clarify before ``starts`` windows up to ``newest`` are decided."""
        doubtful = tuple(self._doubtful(newest, self.policy))
        if self.policy in STOPS:
            return doubtful
        proven = len(self.running) - len(doubtful)
        if self.policy == "allow" or proven >= self.places:
            return ()
        if self.policy == "skip":
            asked = tuple(filter(awaits_look, self.waiting))
            proven += len(self.waiting) - len(asked)
            all_fit = self.open + self.queued + starts <= self.places
            return () if all_fit or proven >= self.places else (*doubtful, *asked)
        if self.queued:
            return () if self.queued + starts <= self.most_queued else doubtful
        unproven = len(doubtful) + self.unread.running
        if self.open + starts <= self.places or unproven > LOOKS_AT_ONCE:
            return ()  # waiting costs nothing that a look could save
        return doubtful

    def add(self, decision: Decision) -> None:
        if self.policy in STOPS:
            self._take_the_place(decision, STOPS[self.policy])
        elif self.policy == "allow" or self._has_place():
            self._put(decision)
        elif self.policy == "skip":
            self._give_way(decision)
        else:
            self._queue(decision)

    def _has_place(self) -> bool:
        """Return whether one more run may start, behind all that came before it."""
        taken = self.open + self.queued + len(self.mine)
        in_line = self.queued and self.policy in FIFO
        return taken < self.places and not in_line

    def _give_way(self, decision: Decision) -> None:
        """Skip a start that enough fires certainly block; queue it for a look otherwise."""
        at = decision.window.fire_time
        mine = sum(self.decided[index].overlap is None for index in self.mine)
        if len(self._certain(at)) + mine >= self.places:
            self.decided.append(_skipped(decision, self._blocked(at)))
        else:
            self._put(replace(decision, verdict="queued", overlap="skip"))

    def _certain(self, at: datetime) -> list[OpenFire]:
        runs = [each for each in self.running if is_confirmed_open(each, at)]
        return [*runs, *(each for each in self.waiting if not awaits_look(each))]

    def _queue(self, decision: Decision) -> None:
        mine = sum(self.decided[index].verdict == "queued" for index in self.mine)
        if self.queued + mine >= self.most_queued:
            self.decided.append(_skipped(decision, self._full()))
        else:
            self._put(replace(decision, verdict="queued"))

    def _take_the_place(self, decision: Decision, stop: Stop) -> None:
        """Stop running fires, give up those not begun, and queue the start until the former end."""
        given_up = _replaced_by(self.named(decision))
        stopped = self._end((*self.running, *self.waiting), stop, given_up)
        self.running, self.waiting = stopped, []
        for index in self.mine:
            self.decided[index] = _skipped(self.decided[index], given_up)
        self.mine = []
        self._put(replace(decision, verdict="queued") if self.running else decision)

    def give_up_waiting(self, decision: Decision) -> None:
        """Give up the waiting fires that were read, for a start that replaces them."""
        given_up = _replaced_by(self.named(decision))
        self._end(self.waiting, STOPS[self.policy], given_up)
        self.waiting = []

    def _end(self, fires: Iterable[OpenFire], stop: Stop, given_up: Reason) -> list[OpenFire]:
        """Give up the fires that have not begun, and stop the others; return the latter."""
        stopped = []
        for fire in fires:
            if fire.status in {"claimed", "queued"}:
                self.moves = [move for move in self.moves if move.fire is not fire]
                self.moves.append(Move(fire, "skip", given_up))
            elif fire.stop in {stop, "terminate"}:
                stopped.append(fire)
            else:
                self.moves.append(Move(fire, stop, given_up))
                stopped.append(replace(fire, stop=stop))
        return stopped

    def _put(self, decision: Decision) -> None:
        self.mine.append(len(self.decided))
        self.decided.append(decision)

    def _full(self, code: ReasonCode = "queue_full", cause: str = "overlap") -> Reason:
        return Reason(code, f"{cause}: the queue is full ({self.most_queued})")

    def _blocked(self, at: datetime) -> Reason:
        """Return what certainly blocks a start: the oldest run, or else the first fire."""
        fires = sorted(self._certain(at), key=lambda each: each.status != "started")
        names = [each.workflow_id for each in fires]
        mine = [self.decided[index] for index in self.mine]
        names += [self.named(each) for each in mine if each.overlap is None]
        runs = fires and fires[0].status == "started"
        if self.places > 1:
            text = f"and {len(names) - 1} more {'are open' if runs else 'come first'}"
        else:
            text = "is still running" if runs else "comes first"
        return Reason("overlap", f"{_BLOCKED_BY}{names[0]} {text}")


def _replaced_by(workflow_id: str) -> Reason:
    return Reason("overlap", f"{_BLOCKED_BY}{workflow_id} took its place")


def blocked_by(reason: str) -> str:
    """Return the workflow id that a reason with the code ``overlap`` names."""
    return reason.removeprefix(_BLOCKED_BY).partition(" ")[0]


def _skipped(decision: Decision, reason: Reason) -> Decision:
    return replace(
        decision,
        verdict="skipped",
        reason=reason,
        timing=None,
        not_before=None,
        missed=0,
        missed_from=None,
    )
