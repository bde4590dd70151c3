"""What must be true of the windows of a key: each has one row, and no row is of anything else."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta

from tests.nemesis.account import Account, Definition, Row
from tests.nemesis.violation import Violation, broken
from tests.nemesis.windows import bucket, is_excluded, windows

TICK = timedelta(microseconds=1)
_CAUGHT_UP = re.compile(r"caught up for (\d+) missed windows")
DECIDED_WITHIN = timedelta(seconds=8)
"""How late a window may be decided when nothing has gone wrong for a while."""


def eras(account: Account, key: str) -> Iterator[tuple[Definition, datetime, datetime]]:
    """Each definition of a key with the span that it owns: ``after < t <= until``."""
    versions = account.versions[key]
    state = account.state(key)
    for definition, following in zip(versions, [*versions[1:], None], strict=True):
        after = definition.effective_from
        if definition.version == 1 and "everyMs" in definition.entry:
            after -= TICK  # first sight owes the window that is open then
        until = following.effective_from if following else state.cursor
        yield definition, after, until


def covered(account: Account, row: Row) -> list[datetime]:
    """The fire times that a row stands for, by the definition that decided it."""
    if row.windows == 1:
        return [row.fire_time]
    return windows(account.entry(row), row.fire_time - TICK, row.last_fire_time)


def _rows(account: Account, key: str) -> dict[tuple[int, datetime], list[Row]]:
    found: dict[tuple[int, datetime], list[Row]] = defaultdict(list)
    for row in account.rows_of[key]:
        if row.is_window:
            for moment in covered(account, row):
                found[row.series, moment].append(row)
    return found


def each_window_has_one_row(account: Account) -> Iterator[Violation]:
    for key in account.versions:
        rows = _rows(account, key)
        for definition, after, until in eras(account, key):
            for moment in windows(definition.entry, after, until):
                found = rows[definition.series, moment]
                if len(found) != 1:
                    said = f"window {moment} of {key} (version {definition.version})"
                    yield broken(f"{said} has {len(found)} rows", definition, found)


def each_row_stands_for_windows(account: Account) -> Iterator[Violation]:
    for key, definitions in account.versions.items():
        owned = {
            (definition.series, moment)
            for definition, after, until in eras(account, key)
            for moment in windows(definition.entry, after, until)
        }
        series = {each.series for each in definitions}
        for row in account.rows_of[key]:
            if not row.is_window:
                continue
            moments = covered(account, row)
            if len(moments) != row.windows or moments[-1] != row.last_fire_time:
                yield broken(f"{row.workflow_id} counts {row.windows} of {len(moments)}", row)
            # A backfill runs a window of before by the present definition; it stays that window.
            its = [each.entry for each in definitions if each.series == row.series]
            entry = its[0] if its else account.entry(row)
            if row.bucket != bucket(entry, row.fire_time):
                yield broken(f"{row.workflow_id} has the number of another window", row)
            strays = [each for each in moments if (row.series, each) not in owned]
            if strays and not _may_stray(account, row, series):
                yield broken(f"{row.workflow_id} stands for {strays[0]}, which is no window", row)


def _may_stray(account: Account, row: Row, series: set[int]) -> bool:
    """A window may be skipped before it comes, or be backfilled from before its definition."""
    ahead = row.fire_time > account.state(row.key).cursor
    backfilled = any(
        verb.given["from"] <= row.fire_time.isoformat() <= verb.given["to"]
        for verb in account.asked("backfill", key=row.key, done=False)
    )
    said = (row.reason or "").startswith("user") or row.reason == "had passed when it was declared"
    return row.series in series and (said if ahead else said or backfilled)


def what_is_owed_is_decided_in_time(account: Account) -> Iterator[Violation]:
    """When nothing has gone wrong for a while, every key has come to the present."""
    if account.calm is None:
        return
    for state in account.calm.schedules:
        if state.paused_at or state.retired_at or not state.enabled:
            continue
        definition = account.versions[state.key][state.definition_version - 1]
        until = account.calm.at - DECIDED_WITHIN
        owed = [
            each
            for each in windows(definition.entry, state.cursor, until)
            if not is_excluded(definition.entry, each)
        ]
        if owed:
            yield broken(f"{state.key} has not decided {owed[0]} at {account.calm.at}", state)


def a_reason_is_true(account: Account) -> Iterator[Violation]:
    """Excluded windows are excluded, coalesced ones have a newer run, paused ones were paused."""
    for row in account.rows:
        if not row.is_window or not row.reason:
            continue
        moments, reason = covered(account, row), row.reason
        if reason.startswith("excluded") and row.status == "skipped":
            entry = account.entry(row)
            if not all(is_excluded(entry, each) for each in moments):
                yield broken(f"{row.workflow_id} is not excluded", row)
        elif reason.startswith("coalesced into "):
            bucket = int(reason.removeprefix("coalesced into "))
            into = [each for each in account.rows_of[row.key] if each.is_window
                    and each.series == row.series and each.bucket == bucket]  # fmt: skip
            if not into or into[0].fire_time <= row.last_fire_time:
                yield broken(f"{row.workflow_id} is coalesced into nothing", row, into)
        elif row.status == "skipped" and reason == "paused":
            paused = all(_may_be_paused(account, row.key, each) for each in moments)
            if not (paused or _may_be_revoked(account, row)):
                yield broken(f"{row.workflow_id} opened in no pause", row)


def a_caught_up_run_stands_for_what_was_missed(account: Account) -> Iterator[Violation]:
    for row in account.rows:
        found = _CAUGHT_UP.fullmatch(row.reason or "")
        filled = any(account.asked("backfill", key=row.key, done=False))
        if not found or filled:  # a backfill takes windows out of what was coalesced
            continue
        coalesced = [
            each
            for each in account.rows_of[row.key]
            if each.series == row.series and each.reason == f"coalesced into {row.bucket}"
        ]
        if sum(each.windows for each in coalesced) != int(found[1]):
            yield broken(f"{row.workflow_id}: {row.reason}", row, coalesced)


def _may_be_paused(account: Account, key: str, moment: datetime) -> bool:
    """Whether somebody may have paused the key before, and nobody surely resumed it since."""
    for verb in account.asked("pause", key=key, done=False):
        if verb.sent > moment:
            continue
        until = verb.given.get("until")
        if until and datetime.fromisoformat(until) <= moment:
            continue
        resumed = any(
            verb.over < each.sent and each.over < moment
            for each in account.asked("resume", key=key)
        )
        if not resumed:
            return True
    return False


def _may_be_revoked(account: Account, row: Row) -> bool:
    """Whether a pause that came later may have found it claimed, and not yet begun."""
    pauses = account.asked("pause", key=row.key, done=False)
    return row.windows == 1 and any(verb.over >= row.decided_at for verb in pauses)


def no_excluded_window_starts(account: Account) -> Iterator[Violation]:
    for row in account.rows:
        if not row.is_window or row.timing == "backfill" or not account.chain(row.workflow_id):
            continue
        if is_excluded(account.entry(row), row.fire_time):
            yield broken(f"{row.workflow_id} of an excluded window runs", row)


LAWS = (
    each_window_has_one_row,
    each_row_stands_for_windows,
    what_is_owed_is_decided_in_time,
    a_reason_is_true,
    a_caught_up_run_stands_for_what_was_missed,
    no_excluded_window_starts,
)
