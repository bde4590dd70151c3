"""What must be true of runs of one key beside each other, by Temporal's own times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

from tests.nemesis.account import Account, Chain, Row
from tests.nemesis.violation import Violation, broken
from tests.nemesis.windows import places, policy

_IS_OPEN = re.compile(r"overlap: (\S+) (?:is still running|and (\d+) more are open)")
_COMES_FIRST = re.compile(r"overlap: (\S+) (?:comes first|and (\d+) more come first)")
_UNSEEN = re.compile(r"overlap: (\S+) was not seen to end")
_REPLACED = re.compile(r"overlap: (\S+) took its place")
_FULL = re.compile(r"overlap: the queue is full \((\d+)\)")
_SENT = timedelta(milliseconds=100)
"""How far the ledger's note of a decision may be from it."""

_STARTED = timedelta(seconds=1)
"""How long a start may be on its way when the queue that it leaves is looked at."""


def _chains_of(account: Account, key: str) -> list[tuple[Row, Chain]]:
    """The runs of a key that take a place, in the order in which they began."""
    found = [
        (row, chain)
        for row in account.rows_of[key]
        if row.kind != "handler" and (chain := account.chain(row.workflow_id))
    ]
    return sorted(found, key=lambda each: each[1].start)


def never_more_at_once_than_places(account: Account) -> Iterator[Violation]:
    """No run begins while as many are open as may be, unless it was asked for with ``allow``.

    What was asked for so after a start was begun is beside it, however long that takes to arrive.
    """
    for key in account.versions:
        chains = _chains_of(account, key)
        for number, (row, chain) in enumerate(chains):
            most = places(account.entry(row))
            if most is None or row.overlap == "allow":
                continue
            begun = row.starting_at or row.decided_at
            others = [
                other
                for its, other in chains[:number]
                if other.is_open_at(chain.start)
                and not (its.overlap == "allow" and (its.starting_at or other.start) > begun)
            ]
            if len(others) >= most:
                text = f"{row.workflow_id} began beside {len(others)} open runs of at most {most}"
                yield broken(text, row, chain, *others)


def a_skip_names_what_was_open(account: Account) -> Iterator[Violation]:
    """A window gives way to a run only if that was open when the window came, or later."""
    for row in account.rows:
        reason = row.reason or ""
        found = _IS_OPEN.fullmatch(reason) or _COMES_FIRST.fullmatch(reason)
        if row.status != "skipped" or not found:
            continue
        other = account.row_of.get(found[1])
        chain = account.chain(found[1])
        if other is None or other.key != row.key:
            yield broken(f"{row.workflow_id}: {reason}, which is no run of its key", row, other)
        elif chain and chain.close and chain.close < row.fire_time:
            yield broken(f"{row.workflow_id}: {reason}, and it had closed", row, chain)
        elif (
            row.is_window  # a request is decided after its row: it waits for the look
            and chain
            and _IS_OPEN.fullmatch(reason)
            and chain.start > row.decided_at + _SENT
        ):
            yield broken(f"{row.workflow_id}: {reason}, and it began later", row, chain)
        elif len(found.groups()) > 1 and found[2]:
            open_ = _in_the_way(account, row)
            if len(open_) <= int(found[2]):
                text = f"{row.workflow_id}: {reason}, and {len(open_)} were"
                yield broken(text, row, _rows(account, open_))


def _in_the_way(account: Account, row: Row) -> list[str]:
    """What was open, or on its way, when this one was decided, and had not closed when it came."""
    found = []
    for other in account.rows_of[row.key]:
        chain = account.chain(other.workflow_id)
        if other is row or other.kind == "handler" or other.decided_at > row.decided_at:
            continue
        had_closed = chain and chain.close and chain.close < row.fire_time
        if not had_closed and (chain or other.status != "skipped"):
            found.append(other.workflow_id)
    return found


def _rows(account: Account, names: list[str]) -> list[Row]:
    return [account.row_of[name] for name in names]


def a_request_gives_way_to_open_runs_only(account: Account) -> Iterator[Violation]:
    """What is asked for by hand is not refused for a run that had closed before."""
    sent = {each.answer["fire"]["workflow_id"]: each for each in account.asked("trigger", "rerun")}
    for row in account.rows:
        found = _UNSEEN.fullmatch(row.reason or "")
        verb, chain = sent.get(row.workflow_id), account.chain(found[1]) if found else None
        if verb and chain and chain.close and chain.close < verb.sent:
            yield broken(f"{row.workflow_id}: {row.reason}, and it had ended", row, chain, verb)


def a_place_is_taken_by_what_is_newer(account: Account) -> Iterator[Violation]:
    for row in account.rows:
        found = _REPLACED.fullmatch(row.reason or "")
        if not found:
            continue
        other = account.row_of.get(found[1])
        if other is None or other.key != row.key or other.decided_at < row.decided_at:
            yield broken(f"{row.workflow_id}: {row.reason}, which is not newer", row, other)
        elif policy(account.entry(other)) not in {"cancel_previous", "terminate_previous"}:
            yield broken(f"{row.workflow_id}: {row.reason}, which stops nothing", row, other)


def a_full_queue_is_full(account: Account) -> Iterator[Violation]:
    """A window finds the queue full when so many wait that have not begun."""
    for row in account.rows:
        found = _FULL.fullmatch(row.reason or "")
        if not found or not row.is_window:
            continue
        waiting = [
            other.workflow_id
            for other in account.rows_of[row.key]
            if other is not row and other.decided_at <= row.decided_at
            and _waited_at(account, other, row)
        ]  # fmt: skip
        if len(waiting) < int(found[1]):
            text = f"{row.workflow_id}: {row.reason}, and {len(waiting)} waited"
            yield broken(text, row, _rows(account, waiting))


def _waited_at(account: Account, other: Row, row: Row) -> bool:
    chain = account.chain(other.workflow_id)
    if chain:
        return chain.start >= row.decided_at - _STARTED

    # It may have been given up since, also by a pause; a window that never waited says why.
    gave_up = other.timing is not None or (other.reason or "").startswith(("user", "retired"))
    return (other.status != "skipped" or gave_up) and other.status != "expired"


def a_queue_is_first_come_first_started(account: Account) -> Iterator[Violation]:
    """Where runs come one at a time, windows begin in the order in which they opened."""
    for key in account.versions:
        before: tuple[Row, Chain] | None = None
        for row, chain in _chains_of(account, key):
            entry = account.entry(row)
            in_line = policy(entry) in {"queue", "queue_one"} and places(entry) == 1
            if not in_line or not row.is_window or row.timing == "backfill":
                continue
            if before and row.fire_time < before[0].fire_time:
                text = f"{row.workflow_id} began after {before[0].workflow_id}, which is newer"
                yield broken(text, row, chain, *before)
            before = (row, chain)


LAWS = (
    never_more_at_once_than_places,
    a_skip_names_what_was_open,
    a_request_gives_way_to_open_runs_only,
    a_place_is_taken_by_what_is_newer,
    a_full_queue_is_full,
    a_queue_is_first_come_first_started,
)
