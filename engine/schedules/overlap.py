"""What becomes of a window that is to start while older runs of its key are open.

A key has so many places: one, or ``maxConcurrentRuns``. Every open run takes one: of older windows
however far back, of manual runs and of reruns; and so does one that is only claimed, being started,
or queued. Only a run that was proven open when the window opened, or later, may cost the window its
start: where the last proof is older, somebody has to look at the run first, and nothing is decided
until then. The table: docs/decisions.md.

A window that waits for other schedules is asked about once those have ended, as if it opened then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from engine.schedules.awaiting import REASON, Awaits, Rule, is_pending, ready_at, unmet
from engine.schedules.decisions import (
    QUEUE_FULL,
    STOPS,
    Decision,
    Move,
    OpenFire,
    Overlap,
    Stop,
)
from engine.schedules.proofs import LOOKS_AT_ONCE, in_turn, is_proven

_IN_LINE: Final[frozenset[Overlap]] = frozenset({"queue", "queue_one"})
"""The policies with which what waits keeps its place: those behind it wait for it."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """What overlap makes of a plan: see ``Plan`` for the words.

    Where starts are ``withheld`` until ``looks`` have answered, nothing is decided.
    """

    decisions: tuple[Decision, ...]
    moves: tuple[Move, ...] = ()
    looks: tuple[OpenFire, ...] = ()
    withheld: bool = False


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
) -> Resolved:
    """Apply ``policy`` to the starts among ``decisions``, and promote what has waited.

    Args:
        policy: of the schedule, or of the one run that is asked for.
        decisions: the starts among them in the order in which they are to be considered. Where
            one takes the place of another they are considered in the order of time: it is
            always the newest window that stays.
        open_fires: of the key, in the order in which they were written.
        places: how many runs may be open at once, unless the policy is ``allow``. With one that
            stops the previous run there is one.
        most_queued: with ``queue``, how many may wait; the others are skipped.
        named: returns the run id of a start.
        final: nothing can be looked at any more; what the ledger has not seen end is open.
        standing: the schedule's own policy, where ``policy`` is that of one run alone: the
            windows that wait already keep to theirs.
        rules: the other schedules that every start has to wait for first.
    """
    most = most_queued if policy == "queue" else 1
    line = _Line(policy, places, most, named, standing or policy)
    line.join(open_fires)
    line.promote()
    line.release(final=final)
    if rules:
        line.most_queued = 1 if policy == "queue_one" else most_queued
        for decision in decisions:
            line.wait(decision, rules)
        return Resolved(tuple(line.settled), tuple(line.moves), in_turn(line.looks))
    starts = [each.window.fire_time for each in decisions if each.verdict == "claimed"]
    if starts and not final and (looks := line.doubts(max(starts), len(starts))):
        return Resolved((), tuple(line.moves), in_turn((*line.looks, *looks)), withheld=True)
    if policy in STOPS:
        decisions = sorted(decisions, key=lambda each: each.window.fire_time)
    for decision in decisions:
        if decision.verdict == "claimed":
            line.add(decision)
        else:
            line.settled.append(decision)
    return Resolved(tuple(line.settled), tuple(line.moves), in_turn(line.looks))


@dataclass
class _Line:
    """The open runs of one key and those that wait behind them, while a plan is made."""

    policy: Overlap
    places: int
    most_queued: int
    named: Callable[[Decision], str]
    standing: Overlap
    running: list[OpenFire] = field(default_factory=list)
    waiting: list[OpenFire] = field(default_factory=list)
    settled: list[Decision] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    pending: list[OpenFire] = field(default_factory=list)
    """Those that wait for other schedules, and are in nobody's way."""
    looks: list[OpenFire] = field(default_factory=list)
    mine: list[int] = field(default_factory=list)
    """Where in ``settled`` the starts and waits of this very plan are."""

    def join(self, fires: Iterable[OpenFire]) -> None:
        for fire in fires:
            if fire.status != "queued":
                self.running.append(fire)
            elif why := unmet(fire.awaited):
                self.moves.append(Move(fire, "skip", why))
            elif is_pending(fire.awaited) and self.standing not in _IN_LINE:
                self.pending.append(fire)
            else:
                self.waiting.append(fire)

    def promote(self) -> None:
        """Start what has waited, in the order it came, as long as a place is free."""
        blocked = False
        for fire in [*self.waiting]:
            own = fire.overlap or self.standing
            if is_pending(fire.awaited):
                blocked = True
            elif fire.awaited and own not in _IN_LINE and own != "allow":
                continue  # `release` asks
            elif own == "allow" or not (blocked or len(self.running) >= self.places):
                self._start(fire)
            else:
                blocked = True
                if fire.awaited:
                    self.moves.append(Move(fire, "release"))

    def _start(self, fire: OpenFire) -> None:
        self.moves.append(Move(fire, "start"))
        self.waiting.remove(fire)
        self.running.append(fire)

    def release(self, *, final: bool) -> None:
        """Ask about what other schedules have let go, where a policy has more to say than wait."""
        ready = [
            fire
            for fire in self.waiting
            if fire.awaited and (fire.overlap or self.standing) not in _IN_LINE
        ]
        for fire in sorted(ready, key=lambda each: each.fire_time):
            self._release(fire, fire.overlap or self.standing, final=final)

    def _release(self, fire: OpenFire, own: Overlap, *, final: bool) -> None:
        at = ready_at(fire.awaited, fire.fire_time)
        doubtful = [each for each in self.running if not is_proven(each, at)]
        full = len(self.running) >= self.places
        is_sure = not doubtful if own in STOPS else len(self.running) - len(doubtful) >= self.places
        if own == "skip" and not full:
            self._start(fire)
        elif doubtful and not is_sure:
            # Nothing has to be decided even where a definition ends: it is there, and waits.
            self.looks += [] if final else doubtful
        elif own == "skip":
            self.waiting.remove(fire)
            self.moves.append(Move(fire, "skip", f"overlap: {self._in_the_way(at)}"))
        else:
            self.waiting.remove(fire)
            given_up = f"overlap: {fire.workflow_id} took its place"
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

    def wait(self, decision: Decision, rules: tuple[Rule, ...]) -> None:
        """Let a start wait for other schedules, if there is room."""
        if decision.verdict != "claimed":
            self.settled.append(decision)
            return
        waiting = len(self.waiting) + len(self.pending) + len(self.mine)
        if waiting >= self.most_queued:
            word = "overlap" if self.policy in _IN_LINE else REASON
            full = f"{word}: the queue is full ({self.most_queued})"
            self.settled.append(_skipped(decision, full))
            return
        awaits = Awaits(rules, decision.reason)
        self._put(replace(decision, verdict="queued", reason=awaits.said, awaits=awaits))

    def doubts(self, newest: datetime, starts: int) -> tuple[OpenFire, ...]:
        """Return the runs to be looked at before ``starts`` windows up to ``newest`` are judged."""
        doubtful = tuple(fire for fire in self.running if not is_proven(fire, newest))
        if self.policy in STOPS:
            return doubtful
        proven = len(self.running) - len(doubtful)
        if self.policy == "allow" or proven >= self.places:
            return ()
        if self.policy == "skip":
            proven += len(self.waiting)
            all_fit = len(self.running) + len(self.waiting) + starts <= self.places
            return () if all_fit or proven >= self.places else doubtful
        if self.waiting:
            return () if len(self.waiting) + starts <= self.most_queued else doubtful
        if len(self.running) + starts <= self.places or len(doubtful) > LOOKS_AT_ONCE:
            return ()  # to wait costs nothing that a look could save
        return doubtful

    def add(self, decision: Decision) -> None:
        if self.policy in STOPS:
            self._take_the_place(decision, STOPS[self.policy])
        elif self.policy == "allow" or self._has_place():
            self._put(decision)
        elif self.policy == "skip":
            self.settled.append(
                _skipped(decision, f"overlap: {self._in_the_way(decision.window.fire_time)}")
            )
        else:
            self._queue(decision)

    def _has_place(self) -> bool:
        """Whether one more may start, behind all that came before it."""
        taken = len(self.running) + len(self.waiting) + len(self.mine)
        in_line = self.waiting and self.policy in _IN_LINE
        return taken < self.places and not in_line

    def _queue(self, decision: Decision) -> None:
        waiting = len(self.waiting) + sum(self.settled[at].verdict == "queued" for at in self.mine)
        if waiting >= self.most_queued:
            full = f"{QUEUE_FULL} ({self.most_queued})"
            self.settled.append(_skipped(decision, full))
        else:
            self._put(replace(decision, verdict="queued"))

    def _take_the_place(self, decision: Decision, stop: Stop) -> None:
        """Stop what runs, give up what has not begun, and wait for the former to end."""
        given_up = f"overlap: {self.named(decision)} took its place"
        stopped = self._end((*self.running, *self.waiting), stop, given_up)
        self.running, self.waiting = stopped, []
        for at in self.mine:
            self.settled[at] = _skipped(self.settled[at], given_up)
        self.mine = []
        self._put(replace(decision, verdict="queued") if self.running else decision)

    def _end(self, fires: Iterable[OpenFire], stop: Stop, given_up: str) -> list[OpenFire]:
        """Give up those that have not begun, and stop the others: return these."""
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
        self.mine.append(len(self.settled))
        self.settled.append(decision)

    def _in_the_way(self, at: datetime) -> str:
        """Say what is in the way: the oldest of those of which it is certain."""
        fires = [each for each in (*self.running, *self.waiting) if is_proven(each, at)]
        if self.places > 1:
            return self._all_in_the_way(fires)
        if fires:
            begun = fires[0].status in {"starting", "started"}
            return f"{fires[0].workflow_id} {'is still running' if begun else 'comes first'}"
        if self.running:
            return f"{self.running[0].workflow_id} was not seen to end"
        return f"{self.named(self.settled[self.mine[0]])} comes first"

    def _all_in_the_way(self, certain: Sequence[OpenFire]) -> str:
        names = [each.workflow_id for each in certain]
        names += [self.named(self.settled[at]) for at in self.mine]
        if len(names) >= self.places:
            return f"{names[0]} and {len(names) - 1} more are open"
        unseen = next(each for each in self.running if each not in certain)
        return f"{unseen.workflow_id} was not seen to end"


def _skipped(decision: Decision, reason: str) -> Decision:
    return replace(
        decision, verdict="skipped", reason=reason, timing=None, not_before=None,
        missed=0, missed_from=None,
    )  # fmt: skip
