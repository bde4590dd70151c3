"""What must be true of schedules and rows, whenever the ledger has committed something.

- The cursor and ``effective_from`` of a key never go back, also where the ledger's clock does.
- A definition takes effect no earlier than the verb had its lock (L3); only first sight owes the
  one window that is open then. A pause begins no earlier either.
- A row moves forward only (L1), and names a run of its own id that is ours.
- Late answers and renewals change nothing that somebody else claimed meanwhile.
- Whatever has a reason has its code, of the closed list.
- Nobody claims while he knows that the ledger's clock was set.
- ``skipped paused`` is said of a pause's own windows, ``skipped disabled`` of those of a disabled
  schedule, ``rejected`` where no worker knows the workflow or the id is somebody else's.
- Nothing begins while as many runs of its key are open as may be, unless it may, or the ledger was
  shown the others only meanwhile; a queue is first come, first started; and a window is only
  skipped for runs that were open when it came.
- What a backfill has laid begins when nothing else of its key waits.
- Nothing missed is coalesced, expired or caught up past a run that Temporal shows (L4).
"""

from __future__ import annotations

import re
from datetime import timedelta

from engine.ledger.postgres.connections import query
from engine.schedules.planner import ScheduleState
from tests.bridge import Commit
from tests.model.account import Account, Look
from tests.model.moments import TICK, policy_of, windows
from tests.model.rows import FireRow
from tests.model.server import Run

RUNNING = {"claimed", "starting", "started"}
CLOSED = {"completed", "failed", "cancelled", "terminated", "timed_out"}
STEPS = {
    "claimed": {"starting", "skipped", "started", *CLOSED},
    "queued": {"claimed", "starting", "skipped", "started", *CLOSED},
    "starting": {"started", "rejected", "unvouched", *CLOSED},
    "started": CLOSED,
    # Evidence wins, and a backfill makes up for what was denied.
    "unvouched": {"started", *CLOSED},
    **{of: {"started", "claimed", "queued", "starting", *CLOSED}
       for of in ("skipped", "expired", "rejected")},
    **{word: {"started", *CLOSED} for word in CLOSED},
}  # fmt: skip
GHOST = "ghost"
"""A schedule whose workflow nobody has."""
_SHOWN = {query("settle"): 1, query("renew"): 2}
"""What changes a claim, and only that of whoever shows its token, by the place of the tokens."""
_AUDITED = ("coalesced", "older than the catch-up window", "beyond catchUp.max", "missed, and")
_ANSWER = timedelta(seconds=61)
"""How long what Temporal showed may be used."""


def of_state(
    account: Account, before: ScheduleState | None, state: ScheduleState, look: Look
) -> None:
    """Judge a schedule's row."""
    key = state.key
    if before is None:
        _first_sight(account, state, look)
        return
    if state.effective_from < before.effective_from:
        account.broken(f"effective_from of {key} goes back")
    if state.cursor < before.cursor:
        account.broken(f"the cursor of {key} goes back from {before.cursor} to {state.cursor}")
    edited = state.definition_version != before.definition_version
    if edited and min(state.effective_from, state.cursor) < look.opened:
        account.broken(f"version {state.definition_version} of {key} takes effect before its verb")
    if state.pause and not before.pause and state.pause.at < look.opened:
        account.broken(f"{key} is paused since before anybody said so")


def _first_sight(account: Account, state: ScheduleState, look: Look) -> None:
    begin, entry = state.effective_from, account.entries[state.digest]
    if begin >= look.opened:
        return
    at_once = entry.get("firstFire") == "now" or ("everyMs" in entry and "firstFire" not in entry)
    # Only the window that is open.
    if not at_once or windows(entry, begin - TICK, look.opened) != [begin]:
        account.broken(f"{state.key} owes windows from before it was declared")


def of_fires(account: Account, look: Look) -> None:
    """Judge the rows that a commit changed."""
    for number, before, fire in look.fires:
        _moves(account, before, fire)
        _names_its_run(account, fire)
        if fire.reason and fire.reason_code is None:
            account.broken(f"{fire.workflow_id} has a reason without a code: {fire.reason}")
        if before is None:
            _is_true(account, fire)
        if (
            before is not None
            and before.status == "queued"
            and fire.status in {"claimed", "starting"}
        ):
            _in_line(account, number, fire)
            account.promoted.add(fire.workflow_id)
        if fire.status == "starting" and fire.replica and account.distrusts(fire.replica):
            account.broken(f"{fire.replica} claims {fire.workflow_id} by a clock set")
        unseen = look.verbs | look.carved
        if before is None and fire.kind == "window" and fire.key not in unseen:
            _past_what_is_seen(account, fire, look)
        if before is None or before.status == "queued":
            _in_the_way(account, fire)
    _overlap(account, look)


def of_writes(account: Account, look: Look, commit: Commit) -> None:
    """Judge what changes claims: one that has another token by now must stay as it is."""
    tokens = _SHOWN.get(commit.alone or "")
    if tokens is not None:
        shown = {*commit.arguments[tokens]}
        for before, fire in look.written:
            if before is None or before.token not in shown:
                account.broken(f"a late answer or renewal changed {fire.workflow_id} of another")


def _moves(account: Account, before: FireRow | None, fire: FireRow) -> None:
    if before is not None and fire.status not in {before.status, *STEPS[before.status]}:
        account.broken(f"{fire.workflow_id} goes from {before.status} to {fire.status}")


def _names_its_run(account: Account, fire: FireRow) -> None:
    run = account.server.by_run_id.get(fire.run_id or "")
    if run is not None and (run.id != fire.workflow_id or run.fire is None):
        account.broken(f"{fire.workflow_id} is said to be the run of {run.id}, {run.kept}")


def _is_true(account: Account, fire: FireRow) -> None:
    name, key = fire.workflow_id, fire.key
    said = (fire.status, fire.reason)
    if fire.status == "rejected" and key != GHOST and fire.reason != "foreign run":
        account.broken(f"{name} is rejected: {fire.reason}")
    if said == ("skipped", "disabled") and account.era(fire).entry.get("enabled", True):
        account.broken(f"{name} is skipped as of a disabled schedule")
    # What was to start, and was not sent when the pause began, had opened before.
    if said == ("skipped", "paused") and fire.timing is None and not account.stepped:
        rests, first, last = account.rests[key], fire.fire_time, fire.last_fire_time
        if not any(rest.begin < first and (not rest.over or last <= rest.over) for rest in rests):
            account.broken(f"{name} of {first} is skipped for none of {rests}")


def _in_line(account: Account, number: int, fire: FireRow) -> None:
    if "allow" in _policies(account, fire):
        return
    for other, waiting in account.fires.items():
        if waiting.key != fire.key or waiting.status != "queued":
            continue
        if waiting.overlap != "allow" and _comes_first((other, waiting), (number, fire)):
            account.broken(f"{fire.workflow_id} jumps the queue: {waiting.workflow_id}")


def _comes_first(one: tuple[int, FireRow], other: tuple[int, FireRow]) -> bool:
    """Whether it goes before the other: backfills come last, and in the order of time."""
    (number, fire), (than, its) = one, other
    if "backfill" not in {fire.timing, its.timing}:
        return number < than
    if fire.timing != its.timing:
        return its.timing == "backfill"
    return fire.fire_time < its.fire_time


def _overlap(account: Account, look: Look) -> None:
    shown = account.shown_to_run
    began = {
        number: fire
        for number, before, fire in look.fires
        if fire.status in {"claimed", "starting"}
        and (before is None or before.status not in RUNNING)
    }
    for number, fire in began.items():
        if "allow" in (own := _policies(account, fire)):
            continue
        others = [
            running
            for other, running in account.fires.items()
            if other != number
            # One that may overlap may have begun after it, in the same commit.
            and not (other in began and "allow" in _policies(account, running))
            and running.key == fire.key
            and running.status in RUNNING
            and running.lost_at is None
            and not (other in shown and shown[other] > look.opened)
        ]
        most = _most(account, fire.key)
        if len(others) >= most:
            account.broken(
                f"{fire.workflow_id} ({', '.join(sorted(own))}, {most} at once) begins while"
                f" {', '.join(f'{each.workflow_id} is {each.status}' for each in others)}"
            )
        if others:
            account.seen["began beside others"] += 1
            account.seen["promoted beside others"] += fire.workflow_id in account.promoted


def _most(account: Account, key: str) -> int:
    """How many runs may be open at once, before and after this commit."""
    now = account.limit(account.states[key])
    return max(now, account.places.get(key, now))


def _policies(account: Account, fire: FireRow) -> set[str]:
    """What it may have kept to: its own, or the schedule's, before and after this commit."""
    key, version = fire.key, fire.definition_version
    if fire.overlap:
        return {fire.overlap}
    eras = {policy_of(each.entry) for each in account.eras[key] if each.version == version}
    now = account.states[key].schedule.overlap
    return eras | {now, account.policies.get(key, now)}


def _in_the_way(account: Account, fire: FireRow) -> None:
    """A skip names a run that was open when the window came, or the request: always."""
    if (fire.reason or "").endswith("was not seen to end"):
        account.broken(f"{fire.workflow_id}: {fire.reason}, and nobody has looked")
    found = re.fullmatch(
        r"overlap: (\S+) (?:is still running|comes first|and (\d+) more (?:are open|come first))",
        fire.reason or "",
    )
    row = account.rows.get(found[1]) if found else None
    if fire.status != "skipped" or not found or account.stepped or row is None:
        return
    runs = (fire.reason or "").endswith("is still running")
    if runs and not account.server.ever[found[1]]:
        account.broken(f"{fire.workflow_id} makes way for {found[1]}, which never ran")
    # What says that it has begun, and ended, may be lost: then it comes first as far as is known.
    forgotten = not runs and found[1] in account.lost
    if _had_ended(account, row, fire) and not forgotten:
        account.broken(f"{fire.workflow_id} makes way for {found[1]}, which had closed")
    account.seen["skipped for a run that was open"] += 1
    if found[2]:
        others = [each for each in account.rows.values() if each.key == fire.key]
        there = [
            each
            for each in others
            if each is not fire
            and (each.run_id or each.status in {*RUNNING, "queued"})
            and not _had_ended(account, each, fire)
        ]
        if len(there) <= int(found[2]):
            account.broken(f"{fire.workflow_id}: {fire.reason}, and {len(there)} are")
        account.seen["skipped for several runs"] += 1


def _had_ended(account: Account, row: FireRow, fire: FireRow) -> bool:
    """Whether the run of ``row`` had closed before the window of ``fire`` came.

    Whatever the ledger knew of it: a send may be answered long after the run has closed.
    """
    run = _last(account, row.workflow_id)
    asked = fire.decided_at if fire.kind == "rerun" else None
    return bool(run and run.close_time and run.close_time < (asked or fire.fire_time))


def _last(account: Account, name: str) -> Run | None:
    runs = [run for run in account.server.by_run_id.values() if run.id == name]
    return runs[-1] if runs else None


def _past_what_is_seen(account: Account, fire: FireRow, look: Look) -> None:
    """What missed windows become is said with all the runs in view that Temporal shows (L4)."""
    caught_up = fire.timing == "caught_up" and fire.run_id is None
    if account.stepped or not (caught_up or (fire.reason or "").startswith(_AUDITED)):
        return
    policy = account.era(fire).entry.get("catchUp", {}).get("policy", "latest")
    first, last = fire.fire_time, fire.last_fire_time
    if caught_up:
        first, last = last + TICK, look.opened
        if policy != "latest":
            return
    seen_by = look.opened - _ANSWER
    if account.believed_until is not None and look.opened < account.believed_until:
        return
    for runs in account.server.runs.values():
        run, info = runs[0], runs[0].fire
        if info is None or (info.key, info.series) != (fire.key, fire.series):
            continue
        if info.timing in {"manual", "rerun", "handler"} or not first <= info.fire_time <= last:
            continue
        if max(run.shown_at, run.start_time) <= seen_by:
            account.broken(f"{fire.workflow_id} is {fire.status} ({fire.reason}) past {run.id}")
