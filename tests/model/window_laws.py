"""What must be true of every window of a key: it has one row, and no row stands for anything else.

``moments.windows`` says which there are, without any of the engine.
"""

from __future__ import annotations

from datetime import datetime

from tests.model.account import Account, Broken
from tests.model.moments import windows


def check(account: Account, key: str) -> None:
    """Judge every window of a key up to its cursor.

    Raises:
        Broken: one has no row, or a row stands for none.
    """
    state, eras = account.states[key], account.eras[key]
    strays = _rows(account, key)
    for era, after in zip(eras, [*eras[1:], None], strict=True):
        end = after.effective_from if after else state.cursor
        for at in windows(era.entry, era.after, end):
            if (era.series, at) not in strays:
                raise Broken(f"{key}: window {at} of version {era.version} has no row")
            del strays[era.series, at]
    for (series, at), (name, said) in strays.items():
        ahead = series == state.series and at > state.cursor
        asked = said.startswith("skipped user") or said.endswith("backfill")
        if not (asked or "declared" in said or name in account.lost):
            raise Broken(f"{key}: {said} of {at} (ahead: {ahead}), which no definition has")


def _rows(account: Account, key: str) -> dict[tuple[int, datetime], tuple[str, str]]:
    """What is said of each window that any row stands for, by series and fire time."""
    entries = {era.version: era.entry for era in account.eras[key]}
    said: dict[tuple[int, datetime], tuple[str, str]] = {}
    for fire in account.fires.values():
        if fire.key != key or fire.kind != "window":
            continue
        name, of = fire.workflow_id, [fire.fire_time]
        first, last = fire.fire_time, fire.last_fire_time
        if fire.windows > 1:
            of += windows(entries[fire.definition_version], first, last)
        if len(of) != fire.windows or of[-1] != last:
            raise Broken(f"{name} says {fire.windows} windows of {len(of)}")
        for at in of:
            if (fire.series, at) in said:
                raise Broken(f"{key} has two rows for {at} of series {fire.series}")
            said[fire.series, at] = (name, f"{fire.status} {fire.reason} {fire.timing}")
    return said
