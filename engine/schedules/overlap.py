"""What becomes of a window that is to start while an older run of its key is open.

Every open run counts: of older windows however far back, of manual runs and of reruns; and so does
one that is only claimed, being started, or queued. Only a run that was proven open when the window
opened, or later, may cost the window its start: where the last proof is older, somebody has to look
at the run first, and the window stays undecided until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from engine.schedules.decisions import Decision, Move, OpenFire, Overlap, Stop

_STOPS: Final[dict[Overlap, Stop]] = {
    "cancel_previous": "cancel",
    "terminate_previous": "terminate",
}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What overlap makes of a plan: see ``Plan`` for the words.

    With ``looks`` no start is decided yet, nor anything after ``undecided_from``: that is tried
    again when the runs have been looked at.
    """

    decisions: tuple[Decision, ...]
    moves: tuple[Move, ...] = ()
    looks: tuple[OpenFire, ...] = ()
    undecided_from: datetime | None = None


def resolve(
    policy: Overlap,
    decisions: Sequence[Decision],
    open_fires: Sequence[OpenFire],
    *,
    most_queued: int,
    named: Callable[[Decision], str],
    trusting: bool = False,
) -> Resolved:
    """Apply ``policy`` to the starts among ``decisions``, and promote what has waited.

    Args:
        policy: of the schedule.
        decisions: the starts among them in the order in which they are to be considered.
        open_fires: of the key, in the order in which they were written.
        most_queued: with ``queue``, how many may wait; the others are skipped.
        named: returns the run id of a start.
        trusting: nobody can look now, so what the ledger says is taken for the truth.
    """
    line = _Line(policy, most_queued, named)
    line.join(open_fires)
    line.promote()
    starts = [each.window.fire_time for each in decisions if each.verdict == "claimed"]
    if starts and not trusting and (looks := line.doubts(max(starts))):
        before = tuple(each for each in decisions if each.until < min(starts))
        return Resolved(before, tuple(line.moves), looks, min(starts))
    for decision in decisions:
        if decision.verdict == "claimed":
            line.add(decision)
        else:
            line.settled.append(decision)
    return Resolved(tuple(line.settled), tuple(line.moves))


@dataclass
class _Line:
    """The open runs of one key and those that wait behind them, while a plan is made."""

    policy: Overlap
    most_queued: int
    named: Callable[[Decision], str]
    running: list[OpenFire] = field(default_factory=list)
    waiting: list[OpenFire] = field(default_factory=list)
    settled: list[Decision] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    mine: list[int] = field(default_factory=list)
    """Where in ``settled`` the starts and waits of this very plan are."""

    def join(self, fires: Iterable[OpenFire]) -> None:
        for fire in fires:
            (self.waiting if fire.status == "queued" else self.running).append(fire)

    def promote(self) -> None:
        """Start what has waited, in the order it came, as soon as nothing runs any more."""
        for fire in [*self.waiting]:
            own = fire.overlap or self.policy
            if own != "allow" and self.running:
                break
            self.moves.append(Move(fire, "start"))
            self.waiting.remove(fire)
            self.running.append(fire)

    def doubts(self, newest: datetime) -> tuple[OpenFire, ...]:
        """Return the runs that must be looked at before windows up to ``newest`` are judged."""
        if self.policy == "allow":
            return ()
        doubtful = tuple(
            fire
            for fire in self.running
            if fire.status == "started" and (fire.open_at is None or fire.open_at < newest)
        )
        sure = self.waiting or len(doubtful) < len(self.running)
        return () if sure and self.policy not in _STOPS else doubtful

    def add(self, decision: Decision) -> None:
        if self.policy in _STOPS:
            self._take_the_place(decision, _STOPS[self.policy])
        elif self.policy == "allow" or not (self.running or self.waiting or self.mine):
            self._put(decision)
        elif self.policy == "skip":
            self.settled.append(_skipped(decision, f"overlap: {self._blocker} is still running"))
        else:
            self._queue(decision)

    def _queue(self, decision: Decision) -> None:
        waiting = len(self.waiting) + sum(self.settled[at].verdict == "queued" for at in self.mine)
        most = self.most_queued if self.policy == "queue" else 1
        if waiting >= most:
            self.settled.append(_skipped(decision, f"overlap: the queue is full ({most})"))
        else:
            self._put(replace(decision, verdict="queued"))

    def _take_the_place(self, decision: Decision, stop: Stop) -> None:
        """Stop what runs, give up what has not begun, and wait for the former to end."""
        given_up = f"overlap: {self.named(decision)} took its place"
        for fire in (*self.running, *self.waiting):
            if fire.status in {"claimed", "queued"}:
                self.moves = [move for move in self.moves if move.fire is not fire]
                self.moves.append(Move(fire, "skip", given_up))
            elif fire.stop not in {stop, "terminate"}:
                self.moves.append(Move(fire, stop, given_up))
        self.running = [fire for fire in self.running if fire.status in {"starting", "started"}]
        self.running = [replace(fire, stop=fire.stop or stop) for fire in self.running]
        self.waiting = []
        for at in self.mine:
            self.settled[at] = _skipped(self.settled[at], given_up)
        self.mine = []
        self._put(replace(decision, verdict="queued") if self.running else decision)

    def _put(self, decision: Decision) -> None:
        self.mine.append(len(self.settled))
        self.settled.append(decision)

    @property
    def _blocker(self) -> str:
        """The id of the oldest run in the way."""
        for fire in (*self.running, *self.waiting):
            return fire.workflow_id
        return self.named(self.settled[self.mine[0]])


def _skipped(decision: Decision, reason: str) -> Decision:
    return replace(
        decision, verdict="skipped", reason=reason, timing=None, not_before=None,
        missed=0, missed_from=None,
    )  # fmt: skip
