"""What must be true of steps and workers, by the steps' own notes and the histories of runs."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterator

from tests.nemesis.account import Account, Note
from tests.nemesis.violation import Violation, broken

_WAKES_WITHIN = 2.0
"""Seconds that a process which stood still may need until it looks at its leases again."""


def each_effect_has_one_key(account: Account) -> Iterator[Violation]:
    """All attempts of one call have one idempotency key, and no other call has it."""
    calls: dict[tuple[str, str], list[Note]] = defaultdict(list)
    keys: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for note in account.notes:
        calls[note.run_id, note.place].append(note)
        keys[note.effect].add((note.run_id, note.place))
    for (run, place), notes in calls.items():
        if len({note.effect for note in notes}) > 1:
            yield broken(f"call {place} of {run} has several keys", notes)
    for effect, found in keys.items():
        if len(found) > 1:
            notes = [note for call in found for note in calls[call]]
            yield broken(f"{len(found)} calls have the key {effect}", notes)


def each_completed_step_had_its_effect(account: Account) -> Iterator[Violation]:
    """What Temporal knows as completed was noted, to its end, by the step itself."""
    noted = {(note.run_id, note.place) for note in account.notes if note.ended is not None}
    for run in account.runs:
        for place in run.effects:
            if (run.run_id, place) not in noted:
                yield broken(f"step {place} of {run.workflow_id} completed without effect", run)


def a_queue_never_runs_more_than_its_limit(account: Account) -> Iterator[Violation]:
    for queue, most in account.queues.items():
        spans = [
            (begin, end, note)
            for note in account.notes
            if note.queue == queue
            for begin, end in _at_work(account, note)
        ]
        for begin, _, note in spans:
            beside = [other for since, until, other in spans if since <= begin < until]
            if len(beside) > most:
                yield broken(f"{len(beside)} steps of {queue} at once, of {most}", note, beside)


def a_worker_ends_only_when_asked(account: Account) -> Iterator[Violation]:
    """It survives whatever breaks around it, and leaves in time, with nothing left to say."""
    for ending in account.endings:
        if not ending.asked:
            yield broken(f"{ending.worker} ended by itself with {ending.code}", ending)
        elif ending.code not in {0, -signal.SIGTERM}:  # the signal itself: it had not yet begun
            yield broken(f"{ending.worker} was asked to leave: {ending.code}", ending)


def no_loop_of_a_worker_fails(account: Account) -> Iterator[Violation]:
    """A server that is away is nothing unexpected, however it goes away."""
    for failure in account.failures:
        yield broken(failure)


def _at_work(account: Account, note: Note) -> list[tuple[float, float]]:
    """When an attempt was at work: not while its process stood still, nor just after."""
    end = float("inf") if note.ended is None else note.ended
    spans = [(note.began, end)]
    for still in account.stillnesses:
        if still.pid != note.pid:
            continue
        until = float("inf") if still.until is None else still.until + _WAKES_WITHIN
        spans = [
            piece
            for begin, end in spans
            for piece in ((begin, min(end, still.since)), (max(begin, until), end))
            if piece[0] < piece[1]
        ]
    return spans


LAWS = (
    each_effect_has_one_key,
    each_completed_step_had_its_effect,
    a_queue_never_runs_more_than_its_limit,
    a_worker_ends_only_when_asked,
    no_loop_of_a_worker_fails,
)
