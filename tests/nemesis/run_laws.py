"""What must be true of the runs in Temporal, beside the rows that speak of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.nemesis import holds
from tests.nemesis.account import CLOSED, Account, Chain, Row, Verb
from tests.nemesis.violation import Violation, broken

_SLACK = timedelta(milliseconds=50)
"""How exact the ledger keeps what Temporal says of a close."""

_DEPENDENCY = re.compile(
    r"dependency: (\S+) (completed|failed|timed out|was terminated|was cancelled|was skipped"
    r"|expired|was rejected)"
)
_RAN = {"started", *CLOSED}
_DIED = ("failed", "timed_out", "rejected")
_FAILED = {"failed", "timed_out", "terminated", "cancelled", "rejected", "unvouched"}


def each_run_has_its_row(account: Account) -> Iterator[Violation]:
    """No run without a row, no window with two first runs, and the memo names that window."""
    for name, chains in account.chains.items():
        if not name.startswith("sched:"):
            continue
        if len(chains) > 1:
            yield broken(f"{name} has {len(chains)} first runs", account.row_of.get(name), *chains)
        row = account.row_of.get(name)
        if row is None:
            yield broken(f"{name} ran, and has no row", *chains)
            continue
        fire = chains[0].runs[0].fire or {}
        named = (fire.get("key"), fire.get("series"), fire.get("bucket"))
        if named != (row.key, row.series, row.bucket):
            yield broken(f"{name} was started for {named}", row, *chains)


def a_row_says_what_its_run_says(account: Account) -> Iterator[Violation]:
    for row in account.rows:
        chain = account.chain(row.workflow_id)
        if chain is None:
            if row.status in {*_RAN, "starting"} or row.run_id:
                yield broken(f"{row.workflow_id} is {row.status}, and no run is there", row)
            continue
        said = "started" if chain.status == "running" else chain.status
        if row.status != said:
            text = f"{row.workflow_id} is {row.status}, its run is {chain.status}"
            yield broken(text, row, chain)
        elif row.run_id not in {run.run_id for run in chain.runs}:
            yield broken(f"{row.workflow_id} names another run", row, chain)
        elif row.closed_at and chain.close and abs(row.closed_at - chain.close) > _SLACK:
            yield broken(f"{row.workflow_id} closed at another time", row, chain)


def nothing_starts_before_its_time(account: Account) -> Iterator[Violation]:
    for row in account.rows:
        chain = account.chain(row.workflow_id)
        if chain and chain.start < row.fire_time - timedelta(milliseconds=1):
            yield broken(f"{row.workflow_id} began before its fire time", row, chain)


def nothing_starts_in_a_pause(account: Account) -> Iterator[Violation]:
    """Neither what opens in it, unless it is made up for, nor what begins to be sent in it."""
    for key in account.versions:
        spans = holds.pauses(account, key)
        for row, chain in _windows_that_ran(account, key):
            made_up = row.timing == "caught_up" and not holds.is_in(spans, chain.start)
            if holds.is_in(spans, row.fire_time) and not made_up:
                yield broken(f"{row.workflow_id} opened in a pause and ran", row, chain)
            elif holds.is_in(spans, row.starting_at) and holds.is_in(spans, chain.start):
                yield broken(f"{row.workflow_id} was started in a pause", row, chain)


def nothing_starts_after_retirement(account: Account) -> Iterator[Violation]:
    for key in account.versions:
        spans = holds.retirements(account, key)
        for row, chain in _windows_that_ran(account, key):
            if holds.is_in(spans, row.fire_time) or holds.is_in(spans, row.starting_at):
                yield broken(f"{row.workflow_id} began after {key} was retired", row, chain)


def _windows_that_ran(account: Account, key: str) -> Iterator[tuple[Row, Chain]]:
    for row in account.rows_of[key]:
        chain = account.chain(row.workflow_id)
        if row.is_window and row.timing != "backfill" and chain:
            yield row, chain


def what_was_skipped_by_hand_stays_skipped(account: Account) -> Iterator[Violation]:
    for verb in account.asked("skip"):
        at = datetime.fromisoformat(verb.given["at"])
        if _is_overruled(account, verb, at):
            continue
        rows = [row for row in account.rows_of[verb.key] if row.is_window and row.fire_time == at]
        by_hand = [row for row in rows if row.status == "skipped" and row.reason == "user"]
        ran = [row for row in rows if account.chain(row.workflow_id)]
        if not by_hand or ran:
            yield broken(f"{verb.key} at {at} is not skipped", verb, rows)


def _is_overruled(account: Account, skip: Verb, at: datetime) -> bool:
    """Whether something else may have spoken of that window since."""
    for verb in account.verbs:
        if verb.outcome == "refused" or verb.over < skip.sent:
            continue
        if verb.verb == "unskip" and (verb.key, verb.given["at"]) == (skip.key, skip.given["at"]):
            return True
        if verb.verb == "backfill" and verb.key == skip.key:
            if verb.given["from"] <= skip.given["at"] <= verb.given["to"]:
                return True
        elif verb.verb in {"apply", "reschedule"}:
            # An edit keeps it where a window opens at the moment; where none does, it goes.
            versions = account.versions[skip.key]
            if any(each.applied_by == verb.by and each.effective_from < at for each in versions):
                return True
    return False


def a_follower_starts_after_what_it_follows(account: Account) -> Iterator[Violation]:
    for key in account.versions:
        for row, chain in _windows_that_ran(account, key):
            entry = account.entry(row)
            rules = [(parent, "success", "same") for parent in entry.get("needs", ())]
            if after := entry.get("after"):
                rules.append(
                    (after["schedule"], after.get("when", "success"), after.get("window", "same"))
                )
            for parent, when, which in rules:
                meant = _meant(account, parent, row.fire_time, which)
                if not any(_is_met(account, each, when, chain.start) for each in meant):
                    text = f"{row.workflow_id} began before {parent} was what it waits for ({when})"
                    yield broken(text, row, chain, meant, _chains(account, meant))


def _meant(account: Account, parent: str, at: datetime, which: str) -> list[Row]:
    rows = [row for row in account.rows_of[parent] if row.is_window and row.fire_time <= at]
    if which == "same":
        return [row for row in rows if row.last_fire_time >= at]
    ran = [row for row in rows if row.status not in {"skipped", "expired"}]
    newest = max((row.fire_time for row in ran if row.timing != "backfill"), default=at)
    return [row for row in ran if row.fire_time >= newest]


def _is_met(account: Account, row: Row, when: str, moment: datetime) -> bool:
    chain = account.chain(row.workflow_id)
    ended = chain.close <= moment if chain and chain.close else row.status == "rejected"
    status = chain.status if chain else row.status
    wanted = {"success": {"completed"}, "failure": _FAILED, "always": {"completed", *_FAILED}}
    return ended and status in wanted[when]


def _chains(account: Account, rows: list[Row]) -> list[object]:
    chains = [account.chain(row.workflow_id) for row in rows]
    return [run for chain in chains if chain for run in chain.runs]


def a_dependency_was_what_a_skip_says(account: Account) -> Iterator[Violation]:
    """A follower is skipped for what a parent's window came to, and that is what it came to."""
    for row in account.rows:
        found = _DEPENDENCY.match(row.reason or "")
        if row.status != "skipped" or not found or not row.is_window:
            continue
        parent, word = found[1], found[2]
        after = account.entry(row).get("after", {})
        which = after.get("window", "same") if after.get("schedule") == parent else "same"
        meant = _meant(account, parent, row.fire_time, which)
        if not any(_came_to(account, each, word) for each in meant):
            yield broken(f"{row.workflow_id}: {row.reason}", row, meant, _chains(account, meant))


def _came_to(account: Account, row: Row, word: str) -> bool:
    chain = account.chain(row.workflow_id)
    if word in {"was skipped", "expired", "was rejected"}:
        return chain is None or row.timing == "backfill"  # which came later
    return chain is not None and chain.status == word.removeprefix("was ").replace(" ", "_")


def a_second_run_is_named_and_changes_nothing(account: Account) -> Iterator[Violation]:
    for verb in account.asked("second"):
        row = account.row_of.get(verb.given["name"])
        if row is None or verb.answer["run_id"] not in row.second_runs:
            yield broken(f"{verb.given['name']}: its second run is not named", verb, row)
        elif row.run_id == verb.answer["run_id"]:
            yield broken(f"{row.workflow_id} has become its second run", verb, row)


def a_worker_of_another_cluster_starts_nothing(account: Account) -> Iterator[Violation]:
    if account.stray:
        yield broken(f"{account.stray} runs are on another cluster")
    for code in account.strangers:
        if code not in {2, None}:
            yield broken(f"a worker of another cluster ended with {code}")


def nothing_runs_again_in_a_restored_copy(account: Account) -> Iterator[Violation]:
    """What has run since the copy was made is ``unvouched`` there, or was decided before."""
    booked = {row.workflow_id: row for row in account.restored}
    for note in account.ran_in_the_copy:
        if chain := account.chain(note.workflow_id):
            row = booked.get(note.workflow_id)
            yield broken(f"{note.workflow_id} runs again", row, chain, note)


def a_restored_copy_comes_to_rest(account: Account) -> Iterator[Violation]:
    """Each window of before is decided there: as forgotten, where the copy does not know of it."""
    for row in account.restored:
        waits = row.status in {"claimed", "starting"}
        waits = waits or (row.status == "queued" and row.key not in account.on_hold)
        if waits and row.decided_at < account.ended_at:
            yield broken(f"{row.workflow_id} is still {row.status} in a copy", row)
    if account.copied_at and not any(row.status == "unvouched" for row in account.restored):
        yield broken("nothing is unvouched in a copy of before")


def everything_comes_to_rest(account: Account) -> Iterator[Violation]:
    """At the end nothing is claimed, queued, being started or open."""
    for row in account.rows:
        if row.status in {"claimed", "queued", "starting", "started", "unvouched"}:
            chain = account.chain(row.workflow_id)
            yield broken(f"{row.workflow_id} is still {row.status}", row, chain)
    for schedule in account.schedules:
        if schedule.error:
            yield broken(f"{schedule.key} cannot be planned: {schedule.error}", schedule)


def dead_letters_are_complete(account: Account) -> Iterator[Violation]:
    """What ended badly is a letter until somebody deals with it, and nothing else is one."""
    letters = set(account.letters)
    for row in account.rows:
        died = row.status in _DIED
        if row.workflow_id in letters and not died:
            yield broken(f"{row.workflow_id} is {row.status}, and a dead letter", row)
        if died and row.workflow_id not in letters and not _may_be_dealt_with(account, row):
            yield broken(f"{row.workflow_id} is {row.status}, and no dead letter", row)
    for verb in account.asked("drop"):
        for each in verb.answer.get("answers", ()):
            if each["workflow_id"] in letters:
                yield broken(f"{each['workflow_id']} was dropped, and is a dead letter", verb)


def _may_be_dealt_with(account: Account, row: Row) -> bool:
    died_at = row.closed_at or row.decided_at
    return any(
        verb.given["bucket"] == row.bucket and verb.over >= died_at
        for verb in account.asked("rerun", "drop", key=row.key, done=False)
    )


def what_ended_badly_is_told_once(account: Account) -> Iterator[Violation]:
    """Where ``onDead`` names a workflow, each fire that ended badly has one run of it."""
    for row in account.rows:
        if row.kind == "handler":
            continue
        name = f"{row.workflow_id}:dead"
        wanted = row.status in _DIED and "onDead" in account.entry(row)
        found = account.chains.get(name, [])
        if len(found) != wanted:
            text = f"{row.workflow_id} is {row.status}, and {len(found)} runs were told"
            yield broken(text, row, account.row_of.get(name), *found)


LAWS = (
    each_run_has_its_row,
    a_row_says_what_its_run_says,
    nothing_starts_before_its_time,
    nothing_starts_in_a_pause,
    nothing_starts_after_retirement,
    what_was_skipped_by_hand_stays_skipped,
    a_follower_starts_after_what_it_follows,
    a_dependency_was_what_a_skip_says,
    a_second_run_is_named_and_changes_nothing,
    a_worker_of_another_cluster_starts_nothing,
    nothing_runs_again_in_a_restored_copy,
    a_restored_copy_comes_to_rest,
    everything_comes_to_rest,
    dead_letters_are_complete,
    what_ended_badly_is_told_once,
)
